// The scales kernel follows the dispatch of a large round and stores its scales (I20, scales.cuh). It waits only for
// the kernel before it. The next kernel starts when this one has ended (no PDL): blocks of a dispatch that came earlier
// would lie two by two on some multiprocessors, and both of them would send.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/scales.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads, 2) scales_kernel(const __grid_constant__ ScalesParams p) {
  extern __shared__ __align__(16) std::byte scales_memory[];
  ptx::await_earlier_kernels();
  store_scales(p, scales_memory);
}

}  // namespace ferry::cuda
