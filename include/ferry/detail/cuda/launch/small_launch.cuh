// The launchers of the small kernels over a fabric.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ferry/detail/cuda/kernels/count_kernel.cuh"
#include "ferry/detail/cuda/kernels/counts/give_counts_kernel.cuh"
#include "ferry/detail/cuda/kernels/handles/begin_handle_kernel.cuh"
#include "ferry/detail/cuda/kernels/overflow/zero_results_kernel.cuh"
#include "ferry/detail/cuda/kernels/refused_dispatch.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

inline std::size_t count_bytes(const Plan& plan) {
  return sizeof(CountMemory) + static_cast<std::size_t>(given_counts_at(plan)) * sizeof(std::uint32_t);
}

template <DeviceFabric F>
void give_counts(const GiveCountsParams& params, int most_blocks, cudaStream_t stream) {
  launch(&give_counts_kernel<F>, params, {.blocks = std::clamp(params.num_tokens / kThreads, 1, most_blocks)}, stream);
}

template <DeviceFabric F>
SmallLaunchers small_launchers() {
  return {[](const Plan& plan) {
            prepare_kernel(&begin_handle_kernel<F>, kBeginHandleThreads, 0);
            prepare_kernel(&count_kernel<F>, kThreads, count_bytes(plan));
            prepare_kernel(&excess_kernel<F>, kExcessThreads, 0);
            prepare_kernel(&forget_refused_kernel<F>, kForgetThreads, 0);
            prepare_kernel(&zero_results_kernel<F>, kThreads, 0);
            if (plan.map.has_token_lists()) prepare_kernel(&give_counts_kernel<F>, kThreads, 0);
          },
          [](const HandleCallParams& params, bool pdl, cudaStream_t stream) {
            launch(&begin_handle_kernel<F>, params, {.pdl = pdl, .threads = kBeginHandleThreads}, stream);
          },
          [](const CountParams& params, cudaStream_t stream) {
            launch(&count_kernel<F>, params, {.shared_bytes = count_bytes(params.plan)}, stream);
          },
          [](const ExcessParams& params, cudaStream_t stream) {
            launch(&excess_kernel<F>, params, {.threads = kExcessThreads}, stream);
          },
          [](const ForgetRefusedParams& params, cudaStream_t stream) {
            launch(&forget_refused_kernel<F>, params, {.threads = kForgetThreads}, stream);
          },
          [](const ZeroResultsParams& params, int most_blocks, cudaStream_t stream) {
            launch(&zero_results_kernel<F>, params, grid_of_tokens(params.plan, most_blocks), stream);
          },
          &give_counts<F>};
}

}  // namespace ferry::cuda
