// Ids that name no expert, or one twice in a token: what routing met of them in a round, and how the host learns of it.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/kernels/kernel_params.h"

namespace ferry::cuda {

// One of a round; the counter of the next one is cleared meanwhile (round_clock.cuh).
__device__ __noinline__ inline void report_bad_id(const RoutingArgs& routing, Epoch epoch, int token, int k,
                                                  std::int64_t id) {
  if (fetch_add_relaxed(routing.state->bad_ids[epoch & 1], 1u) != 0) return;
  routing.record->bad_token = token;
  routing.record->bad_k = k;
  routing.record->bad_id = id;
}

// By one thread, once the words of all parts of this rank's own table were seen (I2): tells the host.
__device__ inline void tell_of_bad_ids(const RoutingArgs& routing, Epoch epoch) {
  const std::uint32_t bad = load_relaxed(routing.state->bad_ids[epoch & 1]);
  if (bad == 0) return;
  routing.record->num_bad = bad;
  store_release(routing.record->has_bad_id, 1u);
}

}  // namespace ferry::cuda
