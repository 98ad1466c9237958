// I13: the epoch lives on the device, so that a captured graph can be replayed. Every block of a dispatch reads it when
// the block begins. When all blocks have read it, the first block advances it, long before the kernel ends.
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

// What a block learns when it begins.
struct RoundStart {
  Epoch epoch = 0;      // of the round that this dispatch begins, or of the open round; of a combine: of its results
  Epoch routing = 0;    // of a combine: of the newest dispatch
  bool broken = false;  // the kernel must do nothing (DeviceState::has_stopped)
};

// I13: `call` is the host's number of the dispatch that a call follows; 0: the host does not know. Where it is another
// one's, a graph with a dispatch was replayed since.
__device__ inline bool is_of_other_dispatch(std::uint32_t newest, std::uint32_t call) {
  return call != 0 && newest != call;
}
// One thread reads for the block. The words are one cache line of the device, and loads of it by thousands of warps
// would take microseconds.
__device__ inline RoundStart read_round(const SyncedTeam& all, const DeviceState& state, bool begins,
                                        std::uint32_t call) {
  if (all.thread() != 0) return {};
  const Epoch dispatched = load_relaxed(state.dispatched), refused = load_relaxed(state.refused);
  const std::uint32_t failed = load_relaxed(state.failed), newest = load_relaxed(state.dispatch_call);
  const Epoch epoch = dispatched + (begins ? 1 : 0);
  return {epoch, epoch, failed != 0 || refused == dispatched || is_of_other_dispatch(newest, begins ? 0 : call)};
}
// I13: a combine that follows its dispatch at once takes its number from that; others have one of their own.
template <bool kIsExtra>
__device__ RoundStart read_combine(const SyncedTeam& all, const DeviceState& state, std::uint32_t call) {
  if (all.thread() != 0) return {};
  const Epoch routing = load_relaxed(state.dispatched), refused = load_relaxed(state.refused);
  const Epoch extra = load_relaxed(kIsExtra ? state.extra_result : state.extra);
  const std::uint32_t failed = load_relaxed(state.failed), newest = load_relaxed(state.dispatch_call);
  const bool has_stopped = failed != 0 || (refused == routing && (!kIsExtra || extra == 0));  // second_half_has_stopped
  return {kIsExtra ? extra : routing + extra, routing, has_stopped || is_of_other_dispatch(newest, call)};
}
// Hands what one thread read to all threads. It is a call of its own so that other work can overlap the loads.
__device__ inline RoundStart broadcast_round(const SyncedTeam& all, const RoundStart& seen, RoundStart& shared) {
  if (all.thread() == 0) shared = seen;
  all.sync();
  return shared;
}

// One thread of every block calls it after the barrier of broadcast_round. The barrier proves that the block has read
// the epoch, so no fence is needed.
__device__ inline void arrive(DeviceState& state) { fetch_add_relaxed(state.started, std::uint64_t{1}); }

// One thread of the first of `blocks` calls it. False: a block did not start within the deadline (I21: all fit at
// once). What is stored relaxed is read by kernels that begin when this one has ended. Not inlined: the other blocks
// would jump over it.
template <DeviceFabric F>
__device__ __noinline__ bool advance_epoch(const PeerLinks& links, Epoch epoch, int blocks, std::uint32_t call) {
  DeviceState& state = *links.state;
  const std::uint64_t all = state.started_before + static_cast<std::uint64_t>(blocks);
  if (!typename F::Waits(links).wait_for_block(state.started, all)) return false;
  state.started_before = all;
  store_relaxed(state.bad_ids[(epoch + 1) & 1], 0u);
  store_relaxed(state.token_counter[(epoch + 1) & 1], 0u);
  store_relaxed(state.result_counter, 0u);  // of this round's combine, which has not begun
  fetch_add_relaxed(state.dispatches, std::uint64_t{1});
  store_relaxed(state.dispatch_call, call);
  store_release(state.dispatched, epoch);
  return true;
}

}  // namespace ferry::cuda
