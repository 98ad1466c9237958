// The scales kernel follows the dispatch of a large round and stores its scales (I20, scales.cuh). It waits only for
// the kernel before it. The next kernel starts when this one has ended (no PDL): blocks of a dispatch that came earlier
// would lie two by two on some multiprocessors, and both of them would send.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/scales.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

// Copies row starts into shared memory and ends with a barrier.
__device__ inline RowStarts fetch_row_starts(const ScalesParams& p, std::uint32_t* words) {
  const int count = row_start_words(p.plan);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) words[i] = p.starts[i];
  __syncthreads();
  return row_starts_at(p.plan, words);
}

static __global__ void __launch_bounds__(kThreads, 2) scales_kernel(const __grid_constant__ ScalesParams p) {
  extern __shared__ __align__(16) std::byte scales_memory[];
  ptx::await_earlier_kernels();
  const Epoch epoch = load_relaxed(p.state->dispatched);
  const bool broken = p.state->has_stopped();
  const RowStarts starts = fetch_row_starts(p, reinterpret_cast<std::uint32_t*>(scales_memory + kScalesSharedBytes));
  if (broken) return;
  store_scale_share(p, starts, epoch, teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)}),
                    scales_memory + threadIdx.x / 32 * kHeldBytes);
}

}  // namespace ferry::cuda
