// The small kernels of router weights: those that are not f32, that come late, and that go home.
#include <algorithm>

#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/cuda/kernels/returned_kernels.cuh"
#include "ferry/detail/cuda/kernels/weight_kernels.cuh"

namespace ferry::cuda {

// Warps take tokens in turn, so the number of blocks is free.
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

void prepare_wide_weights() { prepare_kernel(&widen_weights_kernel, kThreads, 0); }
void launch_widen_weights(const WideParams& params, int most_blocks, cudaStream_t stream) {
  launch(&widen_weights_kernel, params, {.blocks = std::clamp(params.count / kThreads, 1, most_blocks)}, stream);
}

void prepare_late_weights() {
  prepare_kernel(&put_late_weights_kernel, kThreads, 0);
  prepare_kernel(&await_weighed_kernel, SyncedTeam::kWidth, 0);
  prepare_kernel(&with_late_weights_kernel, kThreads, 0);
}
void launch_late_weights(const LateParams& params, int most_blocks, cudaStream_t stream) {
  const Shape& shape = params.plan.shape;
  const int putting = std::clamp(params.num_tokens * shape.top_k / kThreads, 1, most_blocks);
  launch(&put_late_weights_kernel, params, {.blocks = putting}, stream);
  launch(&await_weighed_kernel, params, {.threads = SyncedTeam::kWidth}, stream);
  const int blocks = blocks_for(std::int64_t{shape.ranks} * shape.max_tokens, most_blocks);
  launch(&with_late_weights_kernel, params, {.blocks = blocks}, stream);
}

}  // namespace ferry::cuda
