// Bad ids: out of range, or a duplicate within a token. Routing counts them in a round, and the host learns of them.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"

namespace ferry::cuda {

// Records one bad id of a round. The counter of the next round is cleared meanwhile (round_clock.cuh).
__device__ __noinline__ inline void report_bad_id(const RoutingArgs& routing, Epoch epoch, int token, int k,
                                                  std::int64_t id) {
  if (fetch_add_relaxed(routing.state->bad_ids[epoch & 1], 1u) != 0) return;
  routing.record->bad_token = token;
  routing.record->bad_k = k;
  routing.record->bad_id = id;
}

// One thread reports to the host after it has seen the words of all parts of this rank's own table (I2).
__device__ inline void tell_of_bad_ids(const RoutingArgs& routing, Epoch epoch) {
  const std::uint32_t bad = load_relaxed(routing.state->bad_ids[epoch & 1]);
  if (bad == 0) return;
  routing.record->num_bad = bad;
  store_release(routing.record->has_bad_id, 1u);
}

}  // namespace ferry::cuda
