// What goes from process to process, in which order: the same walk over the parts sends and receives.
#include "tool/layer/layer_parts.h"

#include <algorithm>
#include <span>

#include "ferry/worlds/process_world.h"

namespace ferry::app {
namespace {

using Deadline = std::chrono::milliseconds;
using Parts = std::vector<std::span<std::byte>>;

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

ProcessWorld& processes(const Ranks& ranks) { return static_cast<ProcessWorld&>(ranks.world()); }

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

Parts in_pieces(const Parts& parts) {
  Parts pieces;
  for (const std::span<std::byte> part : parts)
    for (std::size_t begin = 0; begin < part.size(); begin += kPieceBytes)
      pieces.push_back(part.subspan(begin, std::min(kPieceBytes, part.size() - begin)));
  return pieces;
}

// The first process moves a piece of every rank before the next piece of any: so none waits long while all is well.
template <class PartsOf, class Move>
void move_in_turns(int ranks, const PartsOf& parts_of, const Move& move) {
  std::vector<Parts> pieces;
  std::size_t most = 0;
  for (int rank = 1; rank < ranks; ++rank) most = std::max(most, pieces.emplace_back(in_pieces(parts_of(rank))).size());
  for (std::size_t index = 0; index < most; ++index)
    for (int rank = 1; rank < ranks; ++rank)
      if (const Parts& of_rank = pieces[size(rank - 1)]; index < of_rank.size()) move(of_rank[index], rank);
}

}  // namespace

// Plain numbers, so that they travel as they are.
struct LayerParts::Sizes {
  std::int64_t tokens = 0, hidden = 0, experts = 0, top_k = 0, inter = 0, shared_inter = 0, wide_ids = 0;
};

LayerParts::LayerParts(const Ranks& ranks, const Layer* whole, Deadline deadline) {
  if (whole != nullptr) layer_ = *whole;
  if (!ranks.is_part()) return;
  Sizes mine;
  if (whole != nullptr)
    mine = {whole->tokens,
            whole->hidden,
            whole->experts,
            whole->top_k,
            whole->inter,
            whole->shared_inter,
            whole->ids.dtype == DType::i64};
  std::vector<Sizes> all(size(ranks.size()));
  ProcessWorld& world = processes(ranks);
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, deadline);
  if (whole == nullptr) {
    allocate(all.front());
    for (const auto piece : in_pieces(parts_of(world.rank(), ranks.size()))) world.receive(piece, 0, deadline);
    return;
  }
  move_in_turns(
      ranks.size(), [&](int rank) { return parts_of(rank, ranks.size()); },
      [&](std::span<const std::byte> piece, int rank) { world.send(piece, rank, deadline); });
}

// Pages that no part fills take no memory.
void LayerParts::allocate(const Sizes& sizes) {
  const auto floats = [this](std::int64_t count) {
    return arrays_.emplace_back(std::max<std::size_t>(size(count) * sizeof(float), 1)).as<float>();
  };
  layer_.tokens = sizes.tokens;
  layer_.hidden = static_cast<int>(sizes.hidden);
  layer_.experts = static_cast<int>(sizes.experts);
  layer_.top_k = static_cast<int>(sizes.top_k);
  layer_.inter = static_cast<int>(sizes.inter);
  layer_.shared_inter = static_cast<int>(sizes.shared_inter);
  layer_.x = floats(sizes.tokens * sizes.hidden);
  layer_.ids = ConstTensor(floats(sizes.tokens * sizes.top_k * (sizes.wide_ids != 0 ? 2 : 1)),
                           sizes.wide_ids != 0 ? DType::i64 : DType::i32, {sizes.tokens, sizes.top_k});
  layer_.weights = floats(sizes.tokens * sizes.top_k);
  layer_.gate_up = floats(sizes.experts * 2 * sizes.inter * sizes.hidden);
  layer_.down = floats(sizes.experts * sizes.hidden * sizes.inter);
  if (sizes.shared_inter == 0) return;
  layer_.shared_gate_up = floats(2 * sizes.shared_inter * sizes.hidden);
  layer_.shared_down = floats(sizes.hidden * sizes.shared_inter);
}

// What is only sent is never written.
Parts LayerParts::parts_of(int rank, int ranks) const {
  Parts parts;
  const auto lines = [&](const void* data, std::size_t element, const TokenSpan& span, std::int64_t columns) {
    const std::size_t line = size(columns) * element;
    auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
    if (span.count != 0) parts.emplace_back(bytes + size(span.begin) * line, size(span.count) * line);
  };
  const TokenSpan tokens = tokens_of_rank(layer_.tokens, ranks, rank);
  lines(layer_.x, sizeof(float), tokens, layer_.hidden);
  lines(layer_.ids.data, size_of(layer_.ids.dtype), tokens, layer_.top_k);
  lines(layer_.weights, sizeof(float), tokens, layer_.top_k);
  const Shape shape{ranks, layer_.experts, layer_.top_k, 1, layer_.hidden};
  const TokenSpan experts{first_expert(shape, rank), num_local_experts(shape, rank)};
  const std::int64_t half = std::int64_t{layer_.inter} * layer_.hidden;
  lines(layer_.gate_up, sizeof(float), experts, 2 * half);
  lines(layer_.down, sizeof(float), experts, half);
  if (layer_.shared_inter == 0) return parts;
  const std::int64_t shared_half = std::int64_t{layer_.shared_inter} * layer_.hidden;
  lines(layer_.shared_gate_up, sizeof(float), {0, 1}, 2 * shared_half);
  lines(layer_.shared_down, sizeof(float), {0, 1}, shared_half);
  return parts;
}

void gather_output(const Ranks& ranks, const Layer& layer, float* output, Deadline deadline) {
  if (!ranks.is_part()) return;
  ProcessWorld& world = processes(ranks);
  const auto parts_of = [&](int rank) {
    const TokenSpan tokens = tokens_of_rank(layer.tokens, ranks.size(), rank);
    return Parts{std::as_writable_bytes(
        std::span(output + tokens.begin * layer.hidden, size(tokens.count) * size(layer.hidden)))};
  };
  if (ranks.has_first())
    return move_in_turns(ranks.size(), parts_of,
                         [&](std::span<std::byte> piece, int rank) { world.receive(piece, rank, deadline); });
  for (const auto piece : in_pieces(parts_of(world.rank()))) world.send(piece, 0, deadline);
}

// An array of a dump travels as a header, its extents and its bytes.
struct ArrayHeader {
  char name[32] = {};
  std::int64_t dtype = 0;
  std::int64_t extents = 0;
  std::int64_t bytes = 0;
};

void send_rows(ProcessWorld& world, const DumpedRank& rows, Deadline deadline) {
  const std::uint64_t arrays = rows.size();
  world.send(std::as_bytes(std::span(&arrays, 1)), 0, deadline);
  for (const DumpedArray& array : rows) {
    ArrayHeader header;
    array.name.copy(header.name, sizeof header.name - 1);
    header.dtype = static_cast<std::int64_t>(array.dtype);
    header.extents = static_cast<std::int64_t>(array.shape.size());
    header.bytes = static_cast<std::int64_t>(array.bytes.size());
    world.send(std::as_bytes(std::span(&header, 1)), 0, deadline);
    world.send(std::as_bytes(std::span(array.shape)), 0, deadline);
    world.send(array.bytes, 0, deadline);
  }
}

void receive_rows(ProcessWorld& world, int rank, DumpedRank& rows, std::vector<std::vector<std::byte>>& memory,
                  Deadline deadline) {
  std::uint64_t arrays = 0;
  world.receive(std::as_writable_bytes(std::span(&arrays, 1)), rank, deadline);
  for (; arrays != 0; --arrays) {
    ArrayHeader header;
    world.receive(std::as_writable_bytes(std::span(&header, 1)), rank, deadline);
    std::vector<std::int64_t> shape(size(header.extents));
    world.receive(std::as_writable_bytes(std::span(shape)), rank, deadline);
    std::vector<std::byte>& bytes = memory.emplace_back(size(header.bytes));
    world.receive(bytes, rank, deadline);
    rows.push_back({header.name, static_cast<DType>(header.dtype), std::move(shape), bytes});
  }
}

void gather_rows(const Ranks& ranks, int rank, const DumpedRank& mine, Deadline deadline,
                 const std::function<void(int rank, const DumpedRank& rows)>& take) {
  if (ranks.has_first()) take(rank, mine);
  if (!ranks.is_part()) return;
  if (!ranks.has_first()) return send_rows(processes(ranks), mine, deadline);
  for (int other = 1; other < ranks.size(); ++other) {
    DumpedRank rows;
    std::vector<std::vector<std::byte>> memory;
    receive_rows(processes(ranks), other, rows, memory, deadline);
    take(other, rows);
  }
}

}  // namespace ferry::app
