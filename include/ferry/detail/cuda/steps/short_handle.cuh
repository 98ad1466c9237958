// Short handles in device memory (protocol/contracts/short_handle.h). What a caller's handle says is bounded where it
// is used (I18): its numbers by the bytes that it has, and its messages by the whole handle that is made of it.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/more_rows.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/contracts/short_handle.h"

namespace ferry::cuda {

// ---- from a short one to a whole one

// The parts of which its header tells lie in its bytes.
__device__ inline bool is_whole_inside(const LengthenParams& p, const HandleHeader& h) {
  return h.magic == kShortHandleMagic && ShortHandleSizes(p.plan, kept_by(p.plan, h)).bytes() <= p.bytes;
}

// What check_handle looks at. A handle of another shape says so by its fields.
__device__ inline HandleHeader header_to_check(const LengthenParams& p, const HandleHeader& h) {
  HandleHeader checked = whole_header(h);
  bool same = true;
  for_each_shape_field([&](HandleField field, const char*, std::int32_t HandleHeader::*member) {
    same = same && (field == HandleField::order || h.*member == p.wanted.*member);
  });
  if (h.magic != kShortHandleMagic)  // a whole one is one of more bytes
    checked.magic = h.magic == kHandleMagic ? no_room_word(HandleSizes(p.plan).bytes()) : h.magic;
  else if (same && !is_whole_inside(p, h))
    checked.magic = no_room_word(ShortHandleSizes(p.plan, kept_by(p.plan, h)).bytes());
  return checked;
}

// All but the rows and slots of messages. Every token that came has no row yet. Threads take words in turn.
__device__ inline void lengthen_own(const LengthenParams& p, const HandleHeader& header, const FixedShare& threads) {
  const Plan& plan = p.plan;
  const Kept kept = kept_by(plan, header);
  const ShortHandle from = short_handle_at(plan, p.from, kept);
  const KeptRouting to = kept_routing_at(plan, p.to);
  const int entries = static_cast<int>(kept.tokens) * plan.shape.top_k;
  for (int i = threads.index; i < entries; i += threads.count) {
    const RoutingEntry entry = from.own[i];
    const int expert = plan.code.expert(entry.code);
    to.own[i] = entry;
    to.ids[i] = expert < 0 ? -1 : expert + plan.first_id;
    to.weights[i] = entry.weight;
  }
  for (int i = threads.index; i < row_start_words(plan); i += threads.count)
    to.starts.of_source[i] = from.starts.of_source[i];
  for (int peer = threads.index; peer < plan.shape.ranks; peer += threads.count) {
    to.masked[peer] = from.masked[peer];
    to.results_before[peer] = from.results_before[peer];
  }
  for (int source = 0; source < plan.shape.ranks; ++source) {
    const std::uint32_t tokens = min(from.starts.tokens[source], static_cast<std::uint32_t>(plan.shape.max_tokens));
    const std::size_t first = to.index_of(plan, {source, 0}) * static_cast<std::size_t>(plan.shape.top_k);
    for (int i = threads.index; i < static_cast<int>(tokens) * plan.shape.top_k; i += threads.count)
      to.rows[first + static_cast<std::size_t>(i)] = {kNoRow, 0.0f};
  }
}

// A lane has a message, and a warp as many as ShortHandle::kRun. Warps take runs in turn.
__device__ inline void spread_messages(const LengthenParams& p, const HandleHeader& header, const FixedShare& warps) {
  const Plan& plan = p.plan;
  const Kept kept = kept_by(plan, header);
  const ShortHandle from = short_handle_at(plan, p.from, kept);
  const KeptRouting to = kept_routing_at(plan, p.to);
  const auto tokens = static_cast<std::uint32_t>(plan.shape.ranks) * static_cast<std::uint32_t>(plan.shape.max_tokens);
  const int runs = static_cast<int>(ShortHandle::runs_of(kept.messages));
  for (int run = warps.index; run < runs; run += warps.count) {
    const std::size_t i = static_cast<std::size_t>(run) * ShortHandle::kRun + threadIdx.x % 32;
    ShortMessage message{0, 0};
    if (i < kept.messages) message = from.messages[i];
    if (message.token() >= tokens) message.has_row = 0;
    std::size_t row =
        from.first_rows[run] + std::size_t{sum_before(static_cast<std::uint32_t>(__popc(message.has_row)))};
    if (message.has_row != 0) to.slots[message.token()] = static_cast<std::uint8_t>(message.slot());
    for (std::uint32_t rest = message.has_row; rest != 0 && row < kept.rows; rest &= rest - 1, ++row) {
      const int k = __ffs(static_cast<int>(rest)) - 1;
      if (k < plan.shape.top_k)
        to.rows[std::size_t{message.token()} * static_cast<std::size_t>(plan.shape.top_k) +
                static_cast<std::size_t>(k)] = from.rows[row];
    }
  }
}

// ---- from a whole one to a short one

// Messages and rows of a chunk of tokens in one word, so that one sum has both.
struct ChunkCount {
  std::uint32_t word;
  static_assert(kThreads * kMaxTopK <= 0xFFFF, "a chunk has a token for each thread");

  __device__ static ChunkCount of(std::uint32_t entries) {
    return {entries == 0 ? 0 : static_cast<std::uint32_t>(__popc(entries)) << 16 | 1u};
  }
  __device__ std::uint32_t messages() const { return word & 0xFFFFu; }
  __device__ std::uint32_t rows() const { return word >> 16; }
};

// Bit k: the k-th entry of the token has a row. 0: it did not come.
__device__ inline std::uint32_t entries_with_row(const Plan& plan, const KeptRouting& whole, TokenAt at) {
  if (at.token >= min(static_cast<int>(whole.starts.tokens[at.source]), plan.shape.max_tokens)) return 0;
  const HandleRow* rows = whole.rows + whole.index_of(plan, at) * static_cast<std::size_t>(plan.shape.top_k);
  std::uint32_t bits = 0;
  for (int k = 0; k < plan.shape.top_k; ++k) bits |= rows[k].row != kNoRow ? 1u << k : 0u;
  return bits;
}

// What the chunks before `end` have. All threads of the block call it.
__device__ inline Kept kept_before(const ShortenParams& p, const SyncedTeam& all, int end, MessageMemory& memory) {
  std::uint32_t messages = 0, rows = 0;
  for (int i = all.thread(); i < end; i += all.size()) {
    const ChunkCount count{p.chunk_counts[i]};
    messages += count.messages();
    rows += count.rows();
  }
  messages = sum_of_block(all, messages, memory);
  return {0, messages, sum_of_block(all, rows, memory)};
}

// Whether the short handle has the bytes for it. Else its first word says so, and the host tells of it. All blocks find
// the same.
__device__ inline bool has_room(const ShortenParams& p, const Kept& kept, const SyncedTeam& all) {
  const std::size_t wanted = ShortHandleSizes(p.plan, kept).bytes();
  if (wanted <= p.bytes) return true;
  if (blockIdx.x == 0 && all.thread() == 0) {
    *reinterpret_cast<std::uint64_t*>(p.to) = no_room_word(wanted);
    p.record->handle_bytes_given = p.bytes;
    store_release(p.record->handle_bytes_wanted, std::uint64_t{wanted});
  }
  return false;
}

// A thread has a token. All threads of the block call it.
__device__ inline void shorten_chunk(const ShortenParams& p, const KeptRouting& whole, const ShortHandle& to,
                                     const SyncedTeam& all, int chunk, MessageMemory& memory) {
  const TokenAt at = token_in_chunk(p.plan, chunk);
  const std::uint32_t entries = entries_with_row(p.plan, whole, at);
  const Kept before = kept_before(p, all, chunk, memory);
  const std::uint32_t mine = ChunkCount::of(entries).word;
  const std::uint32_t in_warp = sum_before(mine);
  const int warp = all.thread() / 32;
  if (all.thread() % 32 == 31) memory.totals.rows[warp] = in_warp + mine;
  all.sync();
  const ChunkCount in_chunk{sum_of_warps(memory.totals.rows, warp) + in_warp};
  all.sync();
  if (entries == 0) return;
  const std::size_t message = before.messages + in_chunk.messages();
  std::size_t row = before.rows + in_chunk.rows();
  if (message % ShortHandle::kRun == 0) to.first_rows[message / ShortHandle::kRun] = static_cast<std::uint32_t>(row);
  const std::size_t index = whole.index_of(p.plan, at);
  to.messages[message] = {static_cast<std::uint32_t>(index) << ShortMessage::kSlotBits | whole.slots[index], entries};
  const HandleRow* rows = whole.rows + index * static_cast<std::size_t>(p.plan.shape.top_k);
  for (std::uint32_t rest = entries; rest != 0; rest &= rest - 1)
    to.rows[row++] = rows[__ffs(static_cast<int>(rest)) - 1];
}

// All but what messages say. Threads take words in turn.
__device__ inline void shorten_own(const ShortenParams& p, const KeptRouting& whole, const ShortHandle& to,
                                   const Kept& kept, const FixedShare& threads) {
  const Plan& plan = p.plan;
  for (int i = threads.index; i < static_cast<int>(kept.tokens) * plan.shape.top_k; i += threads.count)
    to.own[i] = whole.own[i];
  for (int i = threads.index; i < row_start_words(plan); i += threads.count)
    to.starts.of_source[i] = whole.starts.of_source[i];
  for (int peer = threads.index; peer < plan.shape.ranks; peer += threads.count) {
    to.masked[peer] = whole.masked[peer];
    to.results_before[peer] = whole.results_before[peer];
  }
  if (threads.index == 0) *to.header = short_header(*whole.header, kept);
}

}  // namespace ferry::cuda
