// The small kernels of router weights that neither write at other ranks nor wait for them.
#include <algorithm>

#include "ferry/detail/cuda/kernels/weights/sum_returned_kernel.cuh"
#include "ferry/detail/cuda/kernels/weights/weight_kernels.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

void prepare_sum_returned() { prepare_kernel(&sum_returned_kernel, kThreads, 0); }
void launch_sum_returned(const ReturnedParams& params, int most_blocks, cudaStream_t stream) {
  constexpr int kTokensOfBlock = 2 * (kThreads / 32);  // a warp has a token
  launch(&sum_returned_kernel, params, {.blocks = std::clamp(params.num_tokens / kTokensOfBlock, 1, most_blocks)},
         stream);
}

void prepare_wide_weights() { prepare_kernel(&widen_weights_kernel, kThreads, 0); }
void launch_widen_weights(const WideParams& params, int most_blocks, cudaStream_t stream) {
  launch(&widen_weights_kernel, params, {.blocks = std::clamp(params.count / kThreads, 1, most_blocks)}, stream);
}

void prepare_with_late_weights() { prepare_kernel(&with_late_weights_kernel, kThreads, 0); }
void launch_with_late_weights(const LateParams& params, int most_blocks, cudaStream_t stream) {
  launch(&with_late_weights_kernel, params, grid_of_tokens(params.plan, most_blocks), stream);
}

}  // namespace ferry::cuda
