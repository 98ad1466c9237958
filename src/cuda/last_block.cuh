// The last block out: the one that finds every other block done moves the epochs on, so that a captured graph replays.
#pragma once

#include "cuda/device_state.h"
#include "cuda/team_group.cuh"
#include "protocol/dispatch.h"

namespace ferry::cuda {

// The same answer in all threads: whether this block is the last, and all went well. What the others did is visible to
// it.
__device__ inline bool is_last_block(const TeamGroup& g, DeviceState& state, bool ok) {
  g.sync();
  bool last = false;
  if (g.thread() == 0) {
    last = fetch_add_ordered(state.ticket, 1u) == gridDim.x - 1;
    if (last) store_release(state.ticket, 0u);
  }
  return g.any(last) && g.all(ok && load_relaxed(state.failed) == 0);
}

// I6: gives the buffers of `epoch` back, once.
template <Fabric F>
__device__ void give_back(const TeamGroup& g, const Plan& plan, F& fabric, DeviceState& state, Epoch epoch) {
  if (load_relaxed(state.combined) >= epoch) return;
  g.sync();
  post_consumed(plan, fabric, g, epoch);
  if (g.thread() == 0) store_release(state.combined, epoch);
}

__device__ inline void add_counts(const TeamGroup& g, const Plan& plan, const std::uint64_t* counts,
                                  DeviceWord<std::uint64_t>* to) {
  for (int peer = g.thread(); peer < plan.shape.ranks; peer += g.size())
    if (counts[peer] != 0) fetch_add_relaxed(to[peer], counts[peer]);
}

}  // namespace ferry::cuda
