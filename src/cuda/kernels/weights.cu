// The kernels of router weights that do not travel with the routing.
#include <algorithm>

#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/cuda/kernels/returned_kernels.cuh"

namespace ferry::cuda {

// Blocks whose warps take tokens in turn.
static int blocks_for(std::int64_t tokens, int most_blocks) {
  constexpr std::int64_t kTokensOfBlock = 2 * (kThreads / 32);
  return static_cast<int>(std::clamp<std::int64_t>(tokens / kTokensOfBlock, 1, most_blocks));
}

void prepare_returned_weights() {
  prepare_kernel(&return_weights_kernel, kThreads, sizeof(ReturnedMemory));
  prepare_kernel(&sum_returned_kernel, kThreads, 0);
}
void launch_return_weights(const ReturnedParams& params, int most_blocks, cudaStream_t stream) {
  const Shape& shape = params.plan.shape;
  const int blocks = blocks_for(std::int64_t{shape.ranks} * shape.max_tokens, most_blocks);
  launch(&return_weights_kernel, params, {.blocks = blocks, .shared_bytes = sizeof(ReturnedMemory)}, stream);
}
void launch_sum_returned(const ReturnedParams& params, int most_blocks, cudaStream_t stream) {
  launch(&sum_returned_kernel, params, {.blocks = blocks_for(params.num_tokens, most_blocks)}, stream);
}

}  // namespace ferry::cuda
