// A kernel after a dispatch that leaves a handle (keep_routing.cuh).
#pragma once

#include "ferry/detail/cuda/steps/routing/keep_routing.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) keep_routing_kernel(const __grid_constant__ KeepParams p) {
  ptx::let_next_kernel_launch();  // it waits for the end of this one
  ptx::await_earlier_kernels();
  keep_routing(p);
}

}  // namespace ferry::cuda
