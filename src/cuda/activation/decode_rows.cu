// The table of kernels that decode rows, and their launch. One source has them all: each is small.
#include <algorithm>
#include <string>

#include "ferry/detail/cuda/activation/decode_rows_launcher.cuh"
#include "ferry/detail/cuda/launch/kernel_setup.h"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

const DecodeRowsLauncher* find_decode_rows_launcher(const char* format) {
  static const auto kLaunchers =
      Formats::table([]<class F>(std::type_identity<F>) { return decode_rows_launcher<F>(); });
  return find_format(kLaunchers, format);
}

namespace {

// Warps share the stretches of all rows.
int spread_stretches(DecodeRowsParams& params, const RowsGrid& grid) {
  params.stretches = (params.hidden + kStretchColumns - 1) / kStretchColumns;
  const std::int64_t wanted = (std::int64_t{params.capacity} * params.stretches + kDecodeWarps - 1) / kDecodeWarps;
  std::int64_t blocks = std::int64_t{grid.multiprocessors} * kDecodeBlocks;
  if (grid.max_blocks > 0) blocks = std::min<std::int64_t>(blocks, grid.max_blocks);
  blocks = std::clamp<std::int64_t>(wanted, 1, blocks);
  const int warps = static_cast<int>(blocks) * kDecodeWarps;
  params.step_rows = static_cast<std::uint32_t>(warps / params.stretches);
  params.step_stretches = warps % params.stretches;
  return static_cast<int>(blocks);
}

// Each block takes one row at a time, in `memory` bytes of shared memory.
int spread_rows(const DecodeRowsLauncher& launcher, const DecodeRowsParams& params, const RowsGrid& grid,
                std::size_t memory) {
  if (!may_have_shared(reinterpret_cast<const void*>(launcher.kernel), memory))
    throw Error(ErrorKind::unsupported, "decode_rows: a row of hidden " + std::to_string(params.hidden) + " needs " +
                                            std::to_string(memory) +
                                            " bytes of shared memory in a block, more than this GPU has");
  std::int64_t blocks =
      std::int64_t{grid.multiprocessors} * blocks_per_multiprocessor(launcher.kernel, kDecodeThreads, memory);
  if (grid.max_blocks > 0) blocks = std::min<std::int64_t>(blocks, grid.max_blocks);
  return static_cast<int>(std::clamp<std::int64_t>(params.capacity, 1, blocks));
}

}  // namespace

void load_decode_rows(const DecodeRowsLauncher& launcher) {
  const void* const kernel = reinterpret_cast<const void*>(launcher.kernel);
  cudaFuncAttributes attributes{};
  require_image("decode_rows", cudaFuncGetAttributes(&attributes, kernel),
                "cudaFuncGetAttributes of the kernel that decodes rows");
  load_kernel(kernel);
}

void launch_decode_rows(const DecodeRowsLauncher& launcher, DecodeRowsParams& params, const RowsGrid& grid) {
  const std::size_t memory = launcher.row_memory != nullptr ? launcher.row_memory(params.hidden) : 0;
  const int blocks =
      launcher.row_memory != nullptr ? spread_rows(launcher, params, grid, memory) : spread_stretches(params, grid);
  const RowsLaunch launch(grid, blocks, kDecodeThreads, memory);
  require_image("decode_rows", cudaLaunchKernelEx(&launch.config, launcher.kernel, params),
                "launch of the kernel that decodes rows");
}

}  // namespace ferry::cuda
