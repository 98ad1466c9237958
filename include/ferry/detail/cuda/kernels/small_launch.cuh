// The launchers of the small kernels over a fabric.
#pragma once

#include <cstddef>

#include "ferry/detail/cuda/kernels/begin_handle_kernel.cuh"
#include "ferry/detail/cuda/kernels/count_kernel.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/cuda/kernels/zero_results_kernel.cuh"

namespace ferry::cuda {

inline std::size_t count_bytes(const Plan& plan) {
  return sizeof(CountMemory) + static_cast<std::size_t>(host_count_words(plan)) * sizeof(std::uint32_t);
}

template <DeviceFabric F>
SmallLaunchers small_launchers() {
  return {[](const Plan& plan) {
            prepare_kernel(&begin_handle_kernel<F>, kBeginHandleThreads, 0);
            prepare_kernel(&count_kernel<F>, kThreads, count_bytes(plan));
            prepare_kernel(&excess_kernel<F>, kExcessThreads, 0);
            prepare_kernel(&zero_results_kernel<F>, kThreads, 0);
          },
          [](const HandleCallParams& params, cudaStream_t stream) {
            launch(&begin_handle_kernel<F>, params, {.threads = kBeginHandleThreads}, stream);
          },
          [](const CountParams& params, cudaStream_t stream) {
            launch(&count_kernel<F>, params, {.shared_bytes = count_bytes(params.plan)}, stream);
          },
          [](const ExcessParams& params, cudaStream_t stream) {
            launch(&excess_kernel<F>, params, {.threads = kExcessThreads}, stream);
          },
          [](const ZeroResultsParams& params, int most_blocks, cudaStream_t stream) {
            launch(&zero_results_kernel<F>, params, grid_of_tokens(params.plan, most_blocks), stream);
          }};
}

}  // namespace ferry::cuda
