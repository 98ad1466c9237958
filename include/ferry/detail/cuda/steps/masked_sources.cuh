// Sources that the mask has taken out since the dispatch of a handle, in a dispatch with that handle. They send
// nothing. So that all other rows lie where the handle says, this rank writes into its own memory how many rows they
// had, as if they had sent it, and no tokens. What would have been their rows becomes padding.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/more_rows.cuh"
#include "ferry/detail/layout/token_list.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {

// The rows of a source in the groups of a rank, local expert by local expert. Rows of later sources follow.
__device__ inline std::uint32_t rows_of_source(const Plan& plan, const RowStarts& starts, int source, int local) {
  const int experts = plan.local_experts();
  const std::uint32_t end = source + 1 < plan.shape.ranks ? starts.of_source[(source + 1) * experts + local]
                                                          : starts.filled[local + plan.shared_groups];
  return end - starts.of_source[source * experts + local];
}

// Stands in for one masked source: all threads of a block.
class StandIn {
 public:
  // `routing`: of the dispatch that follows.
  __device__ StandIn(const SyncedTeam& all, const StandInParams& p, Epoch routing, int source, MessageMemory& memory)
      : all_(all),
        p_(p),
        kept_(kept_routing_at(p.plan, p.handle)),
        routing_(routing),
        source_(source),
        memory_(memory) {}

  __device__ void write() {
    if (all_.thread() < SyncedTeam::kWidth) write_counts();
    if (all_.thread() == 0) store(p_.plan.map.header(routing_, source_), 0);
    if (!p_.by_source) return;
    const std::uint32_t tokens = count_tokens();
    if (all_.thread() == 0)
      *reinterpret_cast<std::uint64_t*>(p_.heap + p_.plan.map.token_list(routing_, source_)) =
          token_list_word(tokens, static_cast<std::uint32_t>(routing_));
  }

 private:
  __device__ void store(std::size_t at, std::uint32_t value) const {
    store_relaxed(*reinterpret_cast<SystemWord<std::uint32_t>*>(p_.heap + at), p_.tag.mark(value, routing_));
  }

  // I19. I18: whatever a caller's handle says, a source has no more rows than its tokens can have. A warp.
  __device__ void write_counts() const {
    const Plan& plan = p_.plan;
    const auto max_tokens = static_cast<std::uint32_t>(plan.shape.max_tokens);
    std::uint32_t left = max_tokens * static_cast<std::uint32_t>(min(plan.shape.top_k, plan.local_experts()));
    for (int first = 0; first < plan.local_experts(); first += SyncedTeam::kWidth) {
      const int local = first + all_.thread();
      const bool exists = local < plan.local_experts();
      const std::uint32_t kept = exists ? min(rows_of_source(plan, kept_.starts, source_, local), max_tokens) : 0;
      const std::uint32_t count = min(kept, left - min(left, sum_before(kept)));
      if (exists)
        store(plan.map.counts(routing_, source_) + static_cast<std::size_t>(local) * sizeof(std::uint32_t), count);
      left -= __reduce_add_sync(kAllLanes, count);
    }
  }

  // Its tokens that have a row, which is one in this order.
  __device__ std::uint32_t count_tokens() {
    const Plan& plan = p_.plan;
    const int tokens = min(static_cast<int>(kept_.starts.tokens[source_]), plan.shape.max_tokens);
    std::uint32_t count = 0;
    for (int token = all_.thread(); token < tokens; token += all_.size()) {
      const HandleRow* rows =
          kept_.rows + kept_.index_of(plan, {source_, token}) * static_cast<std::size_t>(plan.shape.top_k);
      bool comes = false;
      for (int k = 0; k < plan.shape.top_k && !comes; ++k) comes = rows[k].row != kNoRow;
      count += comes ? 1 : 0;
    }
    return sum_of_block(all_, count, memory_);
  }

  const SyncedTeam& all_;
  const StandInParams& p_;
  const KeptRouting kept_;
  Epoch routing_;
  int source_;
  MessageMemory& memory_;
};

// Rows of one group whose messages do not come.
struct RowsToPad {
  std::uint32_t begin;
  std::uint32_t end;
  std::uint32_t first_row = 0;  // of the group
  std::uint32_t tiles = 0;
};

// Those for which there is room.
__device__ inline RowsToPad rows_to_pad(const PadMaskedParams& p, const RowRoom& room, int source, int local) {
  const int group = local + p.plan.shared_groups;
  const std::uint32_t first = p.starts.group[group];
  const std::uint32_t begin = p.starts.of_source[source * p.plan.local_experts() + local];
  const std::uint32_t end = min(begin + rows_of_source(p.plan, p.starts, source, local), room.of_group);
  return {first + begin, min(first + end, room.rows), first, p.starts.tiles[group]};
}

// As cpu::pad_row. A warp.
__device__ inline void pad_row(const PadMaskedParams& p, const RowsToPad& rows, std::uint32_t row) {
  const RowsOut& out = p.out;
  const SyncedTeam warp(SyncedTeam::kWidth);
  const int top_k = p.plan.shape.top_k;
  const bool by_source = out.order == RowOrder::by_source;
  if (warp.thread() < 2 && out.src_info != nullptr)
    out.src_info[2 * static_cast<std::size_t>(row) + static_cast<std::size_t>(warp.thread())] = -1;
  if (warp.thread() == 0 && out.gather != nullptr) out.gather[row] = -1;
  if (warp.thread() == 0 && out.row_sources != nullptr) out.row_sources[row] = -1;
  if (warp.thread() == 0 && out.row_weights != nullptr) out.row_weights[row] = 0.0f;
  if (warp.thread() == 0 && out.global_scales.are_given()) out.global_scales.put(row, 0.0f);
  for (int k = warp.thread(); by_source && k < top_k; k += warp.size()) {
    const std::size_t index =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(top_k) + static_cast<std::size_t>(k);
    if (out.row_topk_ids != nullptr) put_row_id(out, index, -1);
    if (out.row_topk_weights != nullptr) out.row_topk_weights[index] = 0.0f;
  }
  if (out.row_scales.data != nullptr) put_row_scales(warp, out.row_scales, row, nullptr);
  if (out.zeroes_padding) zero_bytes(warp, out.payload + static_cast<std::size_t>(row) * out.row_bytes, out.row_bytes);
  if (out.scales.layout == ScaleLayout::none) return;
  const ScaleRow at{row, rows.first_row, rows.tiles};
  if (out.order == RowOrder::padded)
    PaddedOps<PortableOps>{}.zero_scales(warp, out.scales, at);
  else
    PortableOps{}.zero_scales(warp, out.scales, at);
}

// Lines of `messages` that have the numbers of rows by_source. Threads take words in turn.
__device__ inline void leave_out_messages(const PadMaskedParams& p, int source, const FixedShare& threads) {
  const std::int64_t width = 2 + p.plan.shape.top_k;
  const std::int64_t end = min(std::int64_t{p.out.source_offsets[source + 1]}, p.out.message_capacity) * width;
  for (std::int64_t i = p.out.source_offsets[source] * width + threads.index; i < end; i += threads.count)
    p.out.messages[i] = -1;
}

// Pads the rows of a masked source. Warps take rows in turn.
__device__ inline void pad_rows_of(const PadMaskedParams& p, int source, const FixedShare& warps) {
  const RowRoom room = room_of(p.out);
  const auto pad = [&](const RowsToPad& rows) {
    for (std::uint32_t row = rows.begin + static_cast<std::uint32_t>(warps.index); row < rows.end;
         row += static_cast<std::uint32_t>(warps.count))
      pad_row(p, rows, row);
  };
  if (p.out.order == RowOrder::by_source) {
    if (p.out.messages != nullptr) leave_out_messages(p, source, threads_of_grid());
    return pad({p.out.source_offsets[source], min(p.out.source_offsets[source + 1], room.rows)});
  }
  for (int local = 0; local < p.plan.local_experts(); ++local) pad(rows_to_pad(p, room, source, local));
}

}  // namespace ferry::cuda
