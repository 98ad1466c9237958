// The parameter of the SwiGLU kernels and their launchers: one for each token format, compiled ahead of time or in a
// user's own source (compiled_swiglu.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ferry/detail/activation/swiglu_check.h"
#include "ferry/detail/activation/swiglu_math.h"
#include "ferry/detail/base/divider.h"
#include "ferry/detail/cuda/activation/rows_grid.h"
#include "ferry/rows/activation.h"

namespace ferry {
struct CudaLaunch;  // ferry/cuda/activation.h
}

namespace ferry::cuda {

inline constexpr int kSwigluThreads = 256;  // of a block
inline constexpr int kSwigluWarps = kSwigluThreads / 32;
// Columns that the first warps of a multiprocessor prefetch before the number of rows is known. On an H200 they are
// 2 MiB of bf16 and take as long as that number to come.
inline constexpr int kSwigluPrefetchColumns = 4096;

struct SwigluParams {
  activation::SwigluWork work;  // addresses of device memory
  float alpha = 0;
  float limit = 0;
  bool clamped = false;
  std::uint32_t most_rows = 0;  // row_capacity, as row_offsets can count
  bool by_group = false;        // a row's group is needed: for its tiles, or for its input scale
  Divider lanes;                // threads that share a row: columns of a row by columns of a thread, up to whole blocks
  Divider tile_columns;         // tiles that a row of tiled scales crosses
  int step_rows = 0;            // all threads of the grid as rows and lanes
  int step_lanes = 0;
  int prefetch_turns = 0;       // turns that prefetch their columns before the number of rows is known
  std::uint32_t row_bytes = 0;  // of an input row
  std::uint32_t payload_row_bytes = 0;
  std::int64_t scale_elements = 0;  // of the scale tensor
};

struct SwigluLauncher {
  const void* (*kernel)(DType rows, bool interleaved) = nullptr;  // for this input

  // Where threads take columns of a row: how many at a time, and the kernel's blocks per multiprocessor.
  int columns = 0;
  int (*blocks)(DType rows) = nullptr;
  // Where a block takes a row at a time: the bytes of shared memory that the row needs. Else null.
  std::size_t (*row_memory)(int inter) = nullptr;
};

// Null where this build has no kernel for the format.
const SwigluLauncher* find_swiglu_launcher(const char* format);

// cuda_swiglu with these kernels.
void run_swiglu(const AnyFormat& format, const SwigluLauncher& launcher, const SwigluInput& in, const SwigluOutput& out,
                const SwigluOptions& options, const CudaLaunch& launch);

// load_cuda_swiglu of these kernels.
void load_swiglu(const SwigluLauncher& launcher);

void launch_swiglu(const SwigluLauncher& launcher, SwigluParams& params, bool interleaved, const RowsGrid& grid);

}  // namespace ferry::cuda
