// The table of SwiGLU kernels, and their launch.
#include "ferry/detail/cuda/activation/swiglu_launch.h"

#include <algorithm>
#include <string>

#include "ferry/detail/cuda/activation/swiglu_launcher.cuh"
#include "ferry/detail/cuda/launch/kernel_setup.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

const SwigluLauncher* find_swiglu_launcher(const char* format) {
  static const auto kLaunchers = Formats::table([]<class F>(std::type_identity<F>) { return swiglu_instance<F>(); });
  return find_format(kLaunchers, format);
}

namespace {

// Each thread takes columns. The warps of all blocks share the rows, one turn each at a time.
int spread_columns(const SwigluLauncher& launcher, SwigluParams& params, const RowsGrid& grid) {
  const std::int64_t turns = (params.work.scales.row_capacity * params.lanes.divisor() + 31) / 32;
  std::int64_t blocks = std::int64_t{grid.multiprocessors} * launcher.blocks(params.work.dtype);
  if (grid.max_blocks > 0) blocks = std::min<std::int64_t>(blocks, grid.max_blocks);
  blocks = std::clamp<std::int64_t>(turns, 1, blocks);
  params.prefetch_turns = grid.multiprocessors * (kSwigluPrefetchColumns / (launcher.columns * 32));
  const int threads = static_cast<int>(blocks) * kSwigluThreads;
  params.step_rows = threads / params.lanes.divisor();
  params.step_lanes = threads % params.lanes.divisor();
  return static_cast<int>(blocks);
}

// Each block takes one row at a time, in `bytes` of shared memory.
int spread_rows(const void* kernel, const SwigluParams& params, const RowsGrid& grid, std::size_t memory) {
  cudaFuncAttributes attributes{};
  require_image("swiglu", cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes of the swiglu kernel");
  if (!may_have_shared(kernel, memory))
    throw Error(ErrorKind::unsupported, "swiglu: a row of inter " + std::to_string(params.work.inter) + " needs " +
                                            std::to_string(memory) +
                                            " bytes of shared memory in a block, more than this GPU has");
  std::int64_t blocks = std::int64_t{grid.multiprocessors} * blocks_per_multiprocessor(kernel, kSwigluThreads, memory);
  if (grid.max_blocks > 0) blocks = std::min<std::int64_t>(blocks, grid.max_blocks);
  return static_cast<int>(std::clamp<std::int64_t>(params.work.scales.row_capacity, 1, blocks));
}

}  // namespace

void load_swiglu(const SwigluLauncher& launcher) {
  for (const DType rows : {DType::bf16, DType::f16, DType::f32})
    for (const bool interleaved : {false, true}) {
      const void* const kernel = launcher.kernel(rows, interleaved);
      cudaFuncAttributes attributes{};
      require_image("swiglu", cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes of the swiglu kernel");
      load_kernel(kernel);
    }
}

void launch_swiglu(const SwigluLauncher& launcher, SwigluParams& params, bool interleaved, const RowsGrid& grid) {
  const void* const kernel = launcher.kernel(params.work.dtype, interleaved);
  const std::size_t memory = launcher.row_memory != nullptr ? launcher.row_memory(params.work.inter) : 0;
  const int blocks = launcher.row_memory != nullptr ? spread_rows(kernel, params, grid, memory)
                                                    : spread_columns(launcher, params, grid);
  const RowsLaunch launch(grid, blocks, kSwigluThreads, memory);
  void* arguments[] = {&params};
  require_image("swiglu", cudaLaunchKernelExC(&launch.config, kernel, arguments), "launch of the swiglu kernel");
}

}  // namespace ferry::cuda
