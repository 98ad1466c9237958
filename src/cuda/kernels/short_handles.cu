// The kernels of short handles.
#include <algorithm>

#include "ferry/detail/cuda/kernels/handles/short_handle_kernels.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

void prepare_short_handles() {
  prepare_kernel(&lengthen_own_kernel, kThreads, 0);
  prepare_kernel(&lengthen_rows_kernel, kThreads, 0);
  prepare_kernel(&count_kept_kernel, kThreads, sizeof(MessageMemory));
  prepare_kernel(&shorten_kernel, kThreads, sizeof(MessageMemory));
}

void launch_lengthen(const LengthenParams& params, int most_blocks, cudaStream_t stream) {
  const Grid grid = grid_of_tokens(params.plan, most_blocks);
  launch(&lengthen_own_kernel, params, grid, stream);
  launch(&lengthen_rows_kernel, params, grid, stream);
}

void launch_shorten(const ShortenParams& params, int most_blocks, cudaStream_t stream) {
  const int chunks = params.plan.shape.ranks * message_chunks(params.plan.shape.max_tokens);
  const Grid grid{.blocks = std::min(chunks, most_blocks), .shared_bytes = sizeof(MessageMemory)};
  launch(&count_kept_kernel, params, grid, stream);
  launch(&shorten_kernel, params, grid, stream);
}

}  // namespace ferry::cuda
