// The kernel of router weights that are not f32.
#include <algorithm>

#include "ferry/detail/cuda/kernels/weights/weight_kernels.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

void prepare_wide_weights() { prepare_kernel(&widen_weights_kernel, kThreads, 0); }
void launch_widen_weights(const WideParams& params, int most_blocks, cudaStream_t stream) {
  launch(&widen_weights_kernel, params, {.blocks = std::clamp(params.count / kThreads, 1, most_blocks)}, stream);
}

}  // namespace ferry::cuda
