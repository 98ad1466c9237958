// The launchers of the small kernels over a fabric: a program's own fabric brings them, too.
#pragma once

#include "ferry/detail/cuda/kernels/begin_handle_kernel.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
SmallLaunchers small_launchers() {
  return {[](const Plan&) { prepare_kernel(&begin_handle_kernel<F>, kBeginHandleThreads, 0); },
          [](const HandleCallParams& params, cudaStream_t stream) {
            launch(&begin_handle_kernel<F>, params, {.threads = kBeginHandleThreads}, stream);
          }};
}

}  // namespace ferry::cuda
