// The parameter of the kernels that decode rows, and their launchers: one for each token format, of the library or
// compiled in a user's own source (compiled_decode_rows.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/activation/rows_grid.h"
#include "ferry/detail/formats/global_scales.h"
#include "ferry/detail/layout/scale_layout.h"
#include "ferry/exchange.h"

namespace ferry {
struct CudaLaunch;     // ferry/cuda/activation.h
struct DecodeOptions;  // ferry/cuda/decode_rows.h
}  // namespace ferry

namespace ferry::cuda {

inline constexpr int kDecodeThreads = 256;  // of a block
inline constexpr int kDecodeWarps = kDecodeThreads / 32;
inline constexpr int kDecodeBlocks = 4;  // that a multiprocessor holds at once, where threads decode columns
// A thread decodes eight columns at a time, with so many eights on the way at once. A warp's are a stretch of a row.
inline constexpr int kDecodeColumns = 8;
inline constexpr int kDecodeEights = 4;
inline constexpr int kStretchColumns = 32 * kDecodeColumns * kDecodeEights;

struct DecodeRowsParams {  // addresses are of device memory
  const std::byte* payload = nullptr;
  std::uint64_t payload_row_bytes = 0;
  ScaleTensor scales;  // padded and transposed: row_capacity is the stride
  std::int64_t scale_elements = 0;
  GivenGlobalScales global_scales{};   // not given: 1
  const float* input_scale = nullptr;  // null: 1

  // Which rows hold a token.
  RowOrder order = RowOrder::by_expert;
  int groups = 0;
  std::uint32_t capacity = 0;
  const std::uint32_t* end = nullptr;             // of the rows; padded: null
  const std::int32_t* src_info = nullptr;         // by_expert: negative in padding
  const std::int32_t* counts = nullptr;           // padded
  std::uint32_t stride = 1;                       // padded
  const std::uint32_t* row_offsets = nullptr;     // by_expert
  const std::uint32_t* scales_offsets = nullptr;  // of tiles; null: all rows are one group

  std::byte* values = nullptr;
  DType dtype = DType::none;
  int hidden = 0;
  bool zero_padding = false;

  // All warps of the grid as rows and stretches.
  int stretches = 1;  // of a row
  std::uint32_t step_rows = 0;
  int step_stretches = 0;
};

// Whether rows of a format may have tiled scales in place of its own layout. For all others the layout is a constant of
// the kernel.
template <TokenFormat F>
FERRY_HD constexpr bool may_have_tiles(const F& format) {
  return format.block() == 32 && format.scale_bytes() == 1;
}

struct DecodeRowsLauncher {
  void (*kernel)(DecodeRowsParams) = nullptr;
  // Where a block takes a row at a time: the bytes of shared memory that the row needs. Else null.
  std::size_t (*row_memory)(int hidden) = nullptr;
};

// Null where this build has no kernel for the format.
const DecodeRowsLauncher* find_decode_rows_launcher(const char* format);

// cuda_decode_rows with this kernel.
void run_decode_rows(const AnyFormat& format, const DecodeRowsLauncher& launcher, const RowLayout& layout,
                     const DispatchOutput& rows, const Tensor& values, const DecodeOptions& options,
                     const CudaLaunch& launch);

// load_cuda_decode_rows of this kernel.
void load_decode_rows(const DecodeRowsLauncher& launcher);

void launch_decode_rows(const DecodeRowsLauncher& launcher, DecodeRowsParams& params, const RowsGrid& grid);

}  // namespace ferry::cuda
