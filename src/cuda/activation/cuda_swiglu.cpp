// cuda_swiglu: checks what can be checked without touching device memory, then enqueues one kernel.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/activation/call_memory.h"
#include "cuda/activation/refuse_call.h"
#include "cuda/device/device_memory.h"
#include "ferry/cuda/activation.h"
#include "ferry/detail/activation/swiglu_math.h"
#include "ferry/detail/cuda/activation/swiglu_launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/formats/format_check.h"

namespace ferry {
namespace cuda {
namespace {

constexpr const char* kSwiglu = "swiglu";

SwigluParams params_of(const AnyFormat& format, const activation::SwigluWork& work, const SwigluOptions& options,
                       int columns) {
  SwigluParams params;
  params.work = work;
  params.alpha = options.alpha;
  params.limit = options.limit;
  params.clamped = options.clamped;
  params.most_rows = static_cast<std::uint32_t>(std::min<std::int64_t>(work.scales.row_capacity, UINT32_MAX));
  params.by_group = work.scales.layout == ScaleLayout::tiled || work.input_scales != nullptr;
  if (columns != 0) {
    const int block = format.block() == 0 ? columns : format.block();
    params.lanes = Divider((work.inter + block - 1) / block * (block / columns));
  }
  params.tile_columns = Divider(std::max(tiled_scales_per_row(work.scales.scales_per_row) / kScaleTileColumns, 1));
  const std::size_t row_bytes = 2 * static_cast<std::size_t>(work.inter) * size_of(work.dtype);
  if (row_bytes > UINT32_MAX)
    refuse_call(ErrorKind::unsupported, kSwiglu, "a row of rows has {} bytes; a GPU takes up to 2^32 - 1", row_bytes);
  params.row_bytes = static_cast<std::uint32_t>(row_bytes);
  params.payload_row_bytes = static_cast<std::uint32_t>(work.payload_row_bytes);
  params.scale_elements = scale_tensor_elements(work.scales, work.groups);
  return params;
}

void require_memory(const CallMemory& memory, const SwigluInput& in, const SwigluOutput& out) {
  memory.require("row_offsets", in.row_offsets);
  memory.require("scales_offsets", in.scales_offsets);
  memory.require("input_scales", in.input_scales);
  memory.require("payload", out.payload);
  memory.require("scales", out.scales);
}

const SwigluLauncher& launcher_for(const AnyFormat& format) {
  if (const std::string why = why_without_values(format); !why.empty())
    refuse_call(ErrorKind::invalid_argument, kSwiglu, "{}", why);
  const SwigluLauncher* const launcher = find_swiglu_launcher(format.name());
  if (launcher == nullptr)
    refuse_call(ErrorKind::unsupported, kSwiglu,
                "the format {} is not one of the library's, which alone have kernels here; compiled_swiglu "
                "(ferry/cuda/compiled_swiglu.cuh) compiles those of another",
                format.name());
  return *launcher;
}

}  // namespace

void run_swiglu(const AnyFormat& format, const SwigluLauncher& launcher, const SwigluInput& in, const SwigluOutput& out,
                const SwigluOptions& options, const CudaLaunch& launch) {
  if (launch.max_blocks < 0)
    refuse_call(ErrorKind::invalid_argument, kSwiglu, "max_blocks is {}; it must be 0 (no limit) or more",
                launch.max_blocks);
  const activation::SwigluWork work =
      activation::check_swiglu(format, in, out, options, activation::TensorMemory::device);
  if (work.scales.row_capacity == 0) return;
  const CallMemory memory(kSwiglu, "rows", in.rows);
  require_memory(memory, in, out);
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  memory.require_stream(stream);

  const DeviceScope scope(memory.device());
  SwigluParams params = params_of(format, work, options, launcher.columns);
  const RowsGrid grid = rows_grid(memory.device(), launch.max_blocks, stream);
  launch_swiglu(launcher, params, options.interleaved, grid);
}

}  // namespace cuda

void cuda_swiglu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out, const SwigluOptions& options,
                 const CudaLaunch& launch) {
  cuda::run_swiglu(format, cuda::launcher_for(format), in, out, options, launch);
}

void load_cuda_swiglu(const AnyFormat& format) { cuda::load_swiglu(cuda::launcher_for(format)); }

}  // namespace ferry
