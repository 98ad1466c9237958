// The number of a round lives on the device, so that a captured graph replays. Every block reads it when it begins;
// when all have, the first block moves it on, long before the kernel ends.
#pragma once

#include "cuda/device_state.h"
#include "cuda/team_group.cuh"
#include "protocol/round.h"

namespace ferry::cuda {

// All threads. In a dispatch that sends, the round that begins; else the one that is open.
__device__ inline Epoch read_epoch(DeviceState& state, bool begins) {
  return load_relaxed(state.dispatched) + (begins ? 1 : 0);
}

// By one thread of every block, after the block's threads have read the epoch.
__device__ inline void say_started(DeviceState& state) { fetch_add_ordered(state.started, std::uint64_t{1}); }

// By one thread of the first block. False: a block did not start, which a resident one does.
template <class F>
__device__ bool move_on(DeviceState& state, F& fabric, Epoch epoch) {
  const std::uint64_t all = state.started_before + gridDim.x;
  if (!fabric.wait_for_block(state.started, all, Phase::routing)) return false;
  state.started_before = all;
  store_release(state.bad_ids[(epoch + 1) & 1], 0u);
  fetch_add_relaxed(state.dispatches, std::uint64_t{1});
  store_release(state.dispatched, epoch);
  return true;
}

// Counts of a team, kept in shared memory, to the exchange's.
__device__ inline void add_counts(const TeamGroup& g, const Plan& plan, const std::uint64_t* counts,
                                  DeviceWord<std::uint64_t>* to) {
  for (int peer = g.thread(); peer < plan.shape.ranks; peer += g.size())
    if (counts[peer] != 0) fetch_add_relaxed(to[peer], counts[peer]);
}

}  // namespace ferry::cuda
