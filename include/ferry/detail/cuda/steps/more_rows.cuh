// The outputs of a dispatch that may be left out (WorldCapabilities::more_outputs), after its rows are laid out: from
// the row starts, the tables and the messages that it left in the memory of the exchange. As cpu/rows/more_rows.h. All
// of it stays until this rank begins its next dispatch (I1), which comes later in stream order.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/row_starts.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/protocol/contracts/row_ops.h"
#include "ferry/detail/protocol/contracts/row_places.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/row_scales.h"
#include "ferry/detail/protocol/rows_by_source.h"

namespace ferry::cuda {

// An entry of a token that came: the local expert that it names, or -1.
struct LocalEntry {
  int local = -1;
  std::uint32_t row = 0;  // of by_expert, padded and in_place
  bool fits = false;      // there is room for that row
  float weight = 0.0f;
};

// What the outputs are found from.
struct DispatchLeft {
  const MoreRowsParams& p;
  Epoch routing;
  RowRoom room;

  __device__ const RowStarts& starts() const { return p.starts; }
  __device__ bool by_source() const { return p.out.order == RowOrder::by_source; }
  __device__ int tokens_of(int source) const { return static_cast<int>(p.starts.tokens[source]); }

  // I4. The rows of a replay have the weights of its handle.
  __device__ LocalEntry entry(TokenAt at, int k) const {
    const std::size_t index =
        static_cast<std::size_t>(at.token) * static_cast<std::size_t>(p.plan.shape.top_k) + static_cast<std::size_t>(k);
    const RoutingEntry entry =
        reinterpret_cast<const RoutingEntry*>(p.heap + p.plan.map.table(routing, at.source))[index];
    const ExpertRange mine = p.plan.experts_of(p.plan.rank);
    const int expert = p.plan.code.expert(entry.code);
    if (!mine.contains(expert)) return {};
    const int local = expert - mine.first;
    const std::uint32_t row = row_of(p.plan, p.starts, at.source, local, p.plan.code.position_in_expert(entry.code));
    const bool fits = room.has(p.plan, p.starts, row, local);
    if (p.kept == nullptr) return {local, row, fits, entry.weight};
    const std::size_t before =
        static_cast<std::size_t>(at.source) * static_cast<std::size_t>(p.plan.shape.max_tokens * p.plan.shape.top_k);
    return {local, row, fits, p.kept[before + index].weight};
  }
  __device__ bool comes(TokenAt at) const {
    bool names_one = false;
    for (int k = 0; k < p.plan.shape.top_k && !names_one; ++k) names_one = entry(at, k).local >= 0;
    return names_one;
  }
  // Only where rows are by_source.
  __device__ SourceRows source_rows() const {
    return {p.out.source_offsets, reinterpret_cast<const std::uint64_t*>(p.heap + p.plan.map.token_list(routing, 0)),
            token_list_words(p.plan.shape.max_tokens)};
  }
  __device__ const std::byte* message(TokenAt at) const {
    return p.heap + p.plan.map.message(routing, at.source, at.token);
  }
  __device__ const std::byte* scales(TokenAt at) const { return message(at) + p.out.row_bytes; }
  __device__ float global_scale(TokenAt at) const {
    return *reinterpret_cast<const float*>(message(at) + p.global_scale_at);
  }
};

// Rows that came, and for which there was no room. One thread.
__device__ inline std::uint32_t rows_without_room(const DispatchLeft& left) {
  const Plan& plan = left.p.plan;
  if (left.room.holds_all()) return 0;
  if (left.by_source()) {
    const std::uint32_t came = left.p.out.source_offsets[plan.shape.ranks];
    return came - min(came, left.room.rows);
  }
  std::uint32_t rows = 0;
  for (int group = 0; group < plan.groups(); ++group) {
    const std::uint32_t filled = left.starts().filled[group];
    const std::uint32_t first = min(left.starts().group[group], left.room.rows);
    rows += filled - min(filled, min(left.room.rows - first, left.room.of_group));
  }
  return rows;
}

// The host tells of it (Record::tell_overflow). One thread.
__device__ inline void report_overflow(const DispatchLeft& left, std::uint32_t rows) {
  HostRecord* const record = left.p.record;
  if (record == nullptr || rows == 0) return;
  const bool is_padded = left.p.out.order == RowOrder::padded;
  record->overflow = {rows, is_padded, is_padded ? std::int64_t{left.p.out.expert_stride} : left.p.out.row_capacity};
  store_release(record->overflows, load_relaxed(record->overflows) + 1);
}

// counts, source_starts and what is added to: each by one thread.
__device__ inline void write_counts(const DispatchLeft& left, const FixedShare& threads) {
  const Plan& plan = left.p.plan;
  const RowsOut& out = left.p.out;
  const RowStarts& starts = left.starts();
  const int sources = plan.shape.ranks;
  for (int group = threads.index; group < plan.groups(); group += threads.count) {
    const std::uint32_t filled = starts.filled[group];
    const int local = group - plan.shared_groups;
    if (out.counts != nullptr) out.counts[group] = static_cast<std::int32_t>(filled);
    if (out.cumulative_counts != nullptr)
      out.cumulative_counts[group] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(out.cumulative_counts[group]) + filled);
    for (int source = 0; out.source_starts != nullptr && source < sources; ++source) {
      const std::uint32_t of_shared = source <= plan.rank ? 0 : filled;  // own tokens, all of them
      const std::uint32_t start = local < 0 ? of_shared : starts.of_source[source * plan.local_experts() + local];
      out.source_starts[group * sources + source] = static_cast<std::int32_t>(start);
    }
  }
  if (threads.index == 0 && (out.overflow != nullptr || left.p.record != nullptr)) {
    const std::uint32_t rows = rows_without_room(left);
    if (out.overflow != nullptr) *out.overflow = static_cast<std::int32_t>(rows);
    report_overflow(left, rows);
  }
  for (int source = threads.index; out.waited_ns != nullptr && source < sources; source += threads.count)
    out.waited_ns[source] +=
        static_cast<std::int64_t>(load_relaxed(left.p.waited_ns[source]) - left.p.waited_before[source]);
}

// A warp's tokens: row_weights, row_sources, row_scales and global_scales.
__device__ inline void write_row_facts(const DispatchLeft& left, TokenAt at) {
  const RowsOut& out = left.p.out;
  const SyncedTeam warp(32);
  const int k = warp.thread();
  const LocalEntry mine = k < left.p.plan.shape.top_k ? left.entry(at, k) : LocalEntry{};
  const unsigned local = __ballot_sync(kAllLanes, mine.local >= 0);
  if (local == 0) return;
  if (left.by_source()) {
    const std::uint32_t row = left.source_rows().row_of(at);
    if (out.row_scales.data != nullptr && left.room.has(row))
      put_row_scales(warp, out.row_scales, row, left.scales(at));
    if (out.global_scales.are_given() && left.room.has(row) && k == 0)
      out.global_scales.put(row, left.global_scale(at));
    return;
  }
  const unsigned fitting = __ballot_sync(kAllLanes, mine.fits);
  if (mine.fits && out.row_weights != nullptr) out.row_weights[mine.row] = mine.weight;
  if (mine.fits && out.row_sources != nullptr) out.row_sources[mine.row] = at.source;
  if (mine.fits && out.global_scales.are_given()) out.global_scales.put(mine.row, left.global_scale(at));
  for (unsigned rest = out.row_scales.data != nullptr ? fitting : 0; rest != 0; rest &= rest - 1) {
    const std::uint32_t row = __shfl_sync(kAllLanes, mine.row, __ffs(static_cast<int>(rest)) - 1);
    put_row_scales(warp, out.row_scales, row, left.scales(at));
  }
}

// The rows of the fused shared expert: own tokens, with weight 1.
__device__ inline void write_shared_facts(const DispatchLeft& left, const FixedShare& warps) {
  const RowsOut& out = left.p.out;
  const SyncedTeam warp(32);
  const int filled = left.p.plan.shared_groups == 0 ? 0 : static_cast<int>(left.starts().filled[0]);
  for (int i = warps.index; i < filled; i += warps.count) {
    const std::uint32_t row = left.starts().group[0] + static_cast<std::uint32_t>(i);
    if (warp.thread() == 0 && out.row_weights != nullptr) out.row_weights[row] = 1.0f;
    if (warp.thread() == 0 && out.row_sources != nullptr) out.row_sources[row] = left.p.plan.rank;
    const TokenAt at{left.p.plan.rank, left.p.shared_begin + i};
    if (warp.thread() == 0 && out.global_scales.are_given()) out.global_scales.put(row, left.global_scale(at));
    if (out.row_scales.data != nullptr) put_row_scales(warp, out.row_scales, row, left.scales(at));
  }
}

// Rows of one group that are padding.
struct PaddingRows {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t first_row = 0;  // of the group
  std::uint32_t tiles = 0;
};

// Rows by_source are one group. Its padding goes on to the capacity.
__device__ inline PaddingRows padding_of(const DispatchLeft& left, int group) {
  const RowStarts& starts = left.starts();
  const std::int64_t capacity = left.p.out.row_capacity;
  if (left.by_source()) return {std::int64_t{left.p.out.source_offsets[left.p.plan.shape.ranks]}, capacity};
  const std::int64_t first = starts.group[group], next = starts.group[group + 1];
  return {min(first + starts.filled[group], next), min(next, capacity), first, starts.tiles[group]};
}

__device__ inline void zero_bytes(const SyncedTeam& warp, std::byte* to, std::size_t bytes) {
  const bool is_whole = bytes % sizeof(uint4) == 0;  // then all rows begin at multiples of it
  const std::size_t vectors = is_whole ? bytes / sizeof(uint4) : 0;
  for (auto i = static_cast<std::size_t>(warp.thread()); i < vectors; i += 32)
    reinterpret_cast<uint4*>(to)[i] = uint4{};
  for (auto i = static_cast<std::size_t>(warp.thread()); !is_whole && i < bytes; i += 32) to[i] = std::byte{0};
}

// Weight and scale 0 where they are asked for, and, where the caller wants that, all else that a matmul reads.
__device__ inline void clear_row(const DispatchLeft& left, const PaddingRows& rows, std::int64_t row) {
  const RowsOut& out = left.p.out;
  const SyncedTeam warp(32);
  const bool is_marked = out.order == RowOrder::by_expert || out.order == RowOrder::in_place;
  if (warp.thread() == 0 && out.row_weights != nullptr) out.row_weights[row] = 0.0f;
  if (warp.thread() == 0 && out.row_sources != nullptr && is_marked) out.row_sources[row] = -1;
  if (warp.thread() == 0 && out.global_scales.are_given()) out.global_scales.put(row, 0.0f);
  if (out.row_scales.data != nullptr) put_row_scales(warp, out.row_scales, row, nullptr);
  if (!out.zeroes_padding) return;
  zero_bytes(warp, out.payload + static_cast<std::size_t>(row) * out.row_bytes, out.row_bytes);
  const int top_k = left.p.plan.shape.top_k;
  for (int k = warp.thread(); out.row_topk_weights != nullptr && k < top_k; k += 32)
    out.row_topk_weights[row * top_k + k] = 0.0f;
  if (is_marked || out.scales.layout == ScaleLayout::none) return;  // the dispatch has cleared them
  const ScaleRow at{row, rows.first_row, rows.tiles};
  if (left.by_source())
    PortableOps{}.zero_scales(warp, out.scales, at);
  else
    PaddedOps<PortableOps>{}.zero_scales(warp, out.scales, at);
}

__device__ inline void write_padding(const DispatchLeft& left, const FixedShare& warps) {
  const int groups = left.by_source() ? 1 : left.p.plan.groups();
  for (int group = 0; group < groups; ++group) {
    const PaddingRows rows = padding_of(left, group);
    for (std::int64_t row = rows.begin + warps.index; row < rows.end; row += warps.count) clear_row(left, rows, row);
  }
}

// A block of a grid.
__device__ inline void write_more_rows(const MoreRowsParams& p) {
  if (p.state->has_stopped()) return;
  const DispatchLeft left{p, load_relaxed(p.state->dispatched), room_of(p.out)};
  write_counts(left, threads_of_grid());
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  if (p.writes_padding) write_padding(left, warps);
  if (!p.writes_facts) return;
  const TokenSequence tokens(p.plan, p.starts, p.plan.rank);
  for (int position = warps.index; position < tokens.length; position += warps.count)
    if (const TokenAt at = tokens.at(position); at.token < left.tokens_of(at.source)) write_row_facts(left, at);
  write_shared_facts(left, warps);
}

// ---- messages

// Shared memory of a block that numbers messages.
struct MessageMemory {
  WarpTotals totals;
};

// A chunk: as many tokens of a source as a block has threads.
__device__ inline int chunks_of_source(const Plan& plan) { return message_chunks(plan.shape.max_tokens); }
__device__ inline TokenAt token_in_chunk(const Plan& plan, int chunk) {
  const int source = chunk / chunks_of_source(plan);
  return {source, (chunk - source * chunks_of_source(plan)) * kThreads + static_cast<int>(threadIdx.x)};
}

// The sum over the threads of the block. It has two barriers.
__device__ inline std::uint32_t sum_of_block(const SyncedTeam& all, std::uint32_t value, MessageMemory& memory) {
  const std::uint32_t of_warp = __reduce_add_sync(kAllLanes, value);
  if (all.thread() % 32 == 0) memory.totals.rows[all.thread() / 32] = of_warp;
  all.sync();
  const std::uint32_t sum = sum_of_warps(memory.totals.rows, WarpTotals::kWarps);
  all.sync();
  return sum;
}
__device__ inline std::uint32_t sum_of_words(const SyncedTeam& all, const std::uint32_t* words, int count,
                                             MessageMemory& memory) {
  std::uint32_t sum = 0;
  for (int i = all.thread(); i < count; i += all.size()) sum += words[i];
  return sum_of_block(all, sum, memory);
}

// How many messages a chunk has. All threads of the block call it.
__device__ inline std::uint32_t messages_in_chunk(const DispatchLeft& left, const SyncedTeam& all, int chunk,
                                                  MessageMemory& memory) {
  const TokenAt at = token_in_chunk(left.p.plan, chunk);
  const bool comes = at.token < left.tokens_of(at.source) && left.comes(at);
  return sum_of_block(all, comes ? 1 : 0, memory);
}

// A line of `messages`.
__device__ inline void describe_message(const DispatchLeft& left, TokenAt at, std::uint32_t number) {
  const RowsOut& out = left.p.out;
  if (number >= out.message_capacity) return;
  const int top_k = left.p.plan.shape.top_k;
  std::int32_t* const line = out.messages + std::int64_t{number} * (2 + top_k);
  line[0] = at.source;
  line[1] = at.token;
  for (int k = 0; k < top_k; ++k) {
    const LocalEntry entry = left.entry(at, k);
    const std::uint32_t row = left.by_source() ? number : entry.row;
    const bool fits = left.by_source() ? entry.local >= 0 && left.room.has(row) : entry.fits;
    line[2 + k] = fits ? static_cast<std::int32_t>(row) : -1;
  }
}

// Rows by_source are messages, so they have their numbers (I23).
__device__ inline void list_chunk(const DispatchLeft& left, const SyncedTeam& all, int chunk, MessageMemory& memory) {
  const TokenAt at = token_in_chunk(left.p.plan, chunk);
  const bool comes = at.token < left.tokens_of(at.source) && left.comes(at);
  if (left.by_source()) {
    if (comes) describe_message(left, at, left.source_rows().row_of(at));
    return;
  }
  const std::uint32_t before = sum_of_words(all, left.p.message_counts, chunk, memory);
  const std::uint32_t in_warp = sum_before(comes ? 1 : 0);
  const int warp = all.thread() / 32;
  if (all.thread() % 32 == 31) memory.totals.rows[warp] = in_warp + (comes ? 1 : 0);
  all.sync();
  const std::uint32_t number = before + sum_of_warps(memory.totals.rows, warp) + in_warp;
  all.sync();
  if (comes) describe_message(left, at, number);
}

// source_offsets, and lines of -1 past the last message.
__device__ inline void end_messages(const DispatchLeft& left, const SyncedTeam& all, FixedShare block,
                                    MessageMemory& memory) {
  const RowsOut& out = left.p.out;
  const Plan& plan = left.p.plan;
  const int chunks = chunks_of_source(plan);
  const std::uint32_t last = left.by_source()
                                 ? out.source_offsets[plan.shape.ranks]
                                 : sum_of_words(all, left.p.message_counts, plan.shape.ranks * chunks, memory);
  const std::int64_t width = 2 + plan.shape.top_k;
  const std::int64_t words = out.messages == nullptr ? 0 : out.message_capacity * width;
  for (std::int64_t i = last * width + block.index * all.size() + all.thread(); i < words;
       i += std::int64_t{block.count} * all.size())
    out.messages[i] = -1;
  if (block.index != 0 || left.by_source() || out.source_offsets == nullptr) return;
  for (int source = all.thread(); source <= plan.shape.ranks; source += all.size()) {
    std::uint32_t before = 0;
    for (int chunk = 0; chunk < source * chunks; ++chunk) before += left.p.message_counts[chunk];
    out.source_offsets[source] = before;
  }
}

}  // namespace ferry::cuda
