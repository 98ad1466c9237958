// widen_weights_kernel: before a kernel that reads weights, where they are bf16 or f16: the same as float32. So the
// kernels that carry tokens need no code for them.
#pragma once

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/weights/wide_weights.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) widen_weights_kernel(const __grid_constant__ WideParams p) {
  ptx::await_earlier_kernels();
  widen_weights(p.weights, p.count, p.to, threads_of_grid());
}

}  // namespace ferry::cuda
