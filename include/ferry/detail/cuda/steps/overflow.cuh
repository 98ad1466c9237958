// What combine has to know of rows for which a dispatch had no room: they are none of its rows, and where a result
// would be made only of them, zeros go home in its place. So the kernels of combine are the same with and without
// them.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/steps/more_rows.cuh"
#include "ferry/detail/cuda/steps/routing/local_entries.cuh"
#include "ferry/detail/cuda/steps/weights/returned_weights.cuh"

namespace ferry::cuda {

// Takes the rows of a token that have no room out of `rows`, where combine would find them. A warp.
__device__ inline void forget_rows(const DispatchLeft& left, TokenAt at, HandleRow* rows) {
  const Plan& plan = left.p.plan;
  const int k = static_cast<int>(threadIdx.x % 32);
  const LocalEntry mine = k < plan.shape.top_k ? left.entry(at, k) : LocalEntry{};
  if (mine.local < 0) return;
  const bool fits = left.by_source() ? left.room.has(left.source_rows().row_of(at)) : mine.fits;
  const std::size_t token = static_cast<std::size_t>(at.source) * static_cast<std::size_t>(plan.shape.max_tokens) +
                            static_cast<std::size_t>(at.token);
  if (!fits) rows[token * static_cast<std::size_t>(plan.shape.top_k) + static_cast<std::size_t>(k)].row = kNoRow;
}

// Says that no weights go home with a result (I25). A warp.
template <RankReach Reach>
__device__ void return_no_weights(const ZeroResultsParams& p, TokenAt at, int index) {
  const HeapMap& map = p.plan.map;
  if (!map.returns_weights()) return;
  const ReturnedSlots<Reach> slots(p.plan, p.links);
  if (threadIdx.x % 32 == 0) {
    slots.of(at, index).of_k = 0;
    fetch_add_relaxed(p.bytes[at.source], std::uint64_t{map.returned_bytes()});
  }
  slots.put(at, index);
  if constexpr (Reach::kHasRemoteRanks)
    if (!Reach(p.links).is_direct(at.source)) typename Reach::Puts(p.links).fence();
}

// A result of zeros at its source, in any format of results (I7). To a remote source it leaves from the send buffer
// that the result would have (I15). A warp.
template <RankReach Reach>
__device__ void send_zeros(const ZeroResultsParams& p, TokenAt at, int index, Epoch epoch) {
  const SyncedTeam warp(32);
  const HeapMap& map = p.plan.map;
  const std::size_t slot = map.result(at.token, index);
  const std::size_t word = map.result_arrived(at.token, index);
  const Reach reach(p.links);
  const bool is_direct = reach.is_direct(at.source);
  return_no_weights<Reach>(p, at, index);
  std::byte* const made_at =
      is_direct ? reach.heap_of(at.source) + slot : p.links.own + map.send_buffer_of(slot, at.source);
  zero_bytes(warp, made_at, map.result_bytes());
  warp.sync();
  if constexpr (Reach::kHasRemoteRanks)
    if (!is_direct) typename Reach::Puts(p.links).put_signal(at.source, slot, made_at, map.result_bytes(), word, epoch);
  if (warp.thread() != 0) return;
  if (is_direct) store_release(*reinterpret_cast<SignalWord*>(reach.heap_of(at.source) + word), epoch);
  fetch_add_relaxed(p.bytes[at.source], std::uint64_t{map.result_bytes()});
}

// Sends zeros as the results of a token that no row makes any more. by_rank: the result of this rank; exact: the
// results of rows without room.
template <RankReach Reach>
__device__ void send_zeros_of(const ZeroResultsParams& p, TokenAt at, Epoch routing, Epoch epoch) {
  const Plan& plan = p.plan;
  const int k = static_cast<int>(threadIdx.x % 32);
  const auto top_k = static_cast<std::size_t>(plan.shape.top_k);
  const std::size_t token = static_cast<std::size_t>(at.source) * static_cast<std::size_t>(plan.shape.max_tokens) +
                            static_cast<std::size_t>(at.token);
  bool is_local = false, has_row = false;
  if (k < plan.shape.top_k) {
    is_local = LocalEntries{plan, p.links.own, routing, p.kept}.has(at, k);
    has_row = p.arrived.rows[token * top_k + static_cast<std::size_t>(k)].row != kNoRow;
  }
  const unsigned local = __ballot_sync(kAllLanes, is_local);
  const unsigned with_row = __ballot_sync(kAllLanes, has_row);
  if (!plan.exact) {
    const int last = static_cast<int>(plan.map.results_per_token()) - 1;  // I18: the slot may be of a caller's handle
    if (local != 0 && with_row == 0)
      send_zeros<Reach>(p, at, min(static_cast<int>(p.arrived.slots[token]), last), epoch);
    return;
  }
  for (unsigned rest = local & ~with_row; rest != 0; rest &= rest - 1)
    send_zeros<Reach>(p, at, __ffs(static_cast<int>(rest)) - 1, epoch);
}

}  // namespace ferry::cuda
