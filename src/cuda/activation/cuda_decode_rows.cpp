// cuda_decode_rows: checks what can be checked without touching device memory, then enqueues one kernel.
#include <fmt/core.h>

#include "cuda/activation/call_memory.h"
#include "cuda/activation/refuse_call.h"
#include "cuda/device/device_memory.h"
#include "ferry/cuda/decode_rows.h"
#include "ferry/detail/activation/call_tensor.h"
#include "ferry/detail/cuda/activation/decode_rows_launch.h"
#include "ferry/detail/formats/format_check.h"
#include "ferry/detail/layout/row_layout_check.h"

namespace ferry {
namespace cuda {
namespace {

constexpr const char* kCall = "decode_rows";

void require(const char* name, const ConstTensor& tensor, DType dtype, std::span<const std::int64_t> shape) {
  activation::require_tensor(kCall, name, tensor, ConstTensor(nullptr, dtype, shape));
}
void require(const char* name, const ConstTensor& tensor, DType dtype, std::initializer_list<std::int64_t> shape) {
  require(name, tensor, dtype, std::span(shape.begin(), shape.end()));
}

void check_options(const AnyFormat& format, const RowLayout& layout, const DecodeOptions& options,
                   const CudaLaunch& launch) {
  constexpr auto kInvalid = ErrorKind::invalid_argument;
  if (launch.max_blocks < 0)
    refuse_call(kInvalid, kCall, "max_blocks is {}; it must be 0 (no limit) or more", launch.max_blocks);
  if (const std::string why = why_invalid(format); !why.empty()) refuse_call(kInvalid, kCall, "{}", why);
  if (const std::string why = why_without_values(format); !why.empty()) refuse_call(kInvalid, kCall, "{}", why);
  if (layout.hidden <= 0 || layout.hidden % kHiddenMultiple != 0)
    refuse_call(kInvalid, kCall, "hidden of the layout is {}; it must be a positive multiple of {}", layout.hidden,
                kHiddenMultiple);
  if (const std::string why = why_other_format(format, layout); !why.empty()) refuse_call(kInvalid, kCall, "{}", why);
  if (layout.scale_layout != format.scale_layout() && !may_have_tiles(format))
    refuse_call(kInvalid, kCall, "the layout has tiled scales; those of {} are {}", format.name(),
                to_string(format.scale_layout()));
  if (options.row_order == RowOrder::in_place)
    refuse_call(kInvalid, kCall,
                "row_order is in_place, whose rows are messages (Exchange::arrival_slots); it must be by_expert, "
                "padded or by_source");
  if (options.expert_stride < 0 || (options.expert_stride != 0 && options.row_order != RowOrder::padded))
    refuse_call(kInvalid, kCall, "expert_stride is {}; of rows {} it must be 0{}", options.expert_stride,
                to_string(options.row_order), options.row_order == RowOrder::padded ? " or more" : "");
}

// Dispatch also takes u8 where the payload is bf16.
void check_payload(const RowLayout& layout, const Tensor& payload, DecodeRowsParams& params) {
  const bool is_bf16 = payload.dtype == DType::bf16 && layout.payload_row_bytes == 2 * std::int64_t{layout.hidden};
  const std::int64_t rows = payload.rank == 2 ? payload.shape[0] : 0;
  require("payload", payload, is_bf16 ? DType::bf16 : DType::u8,
          {rows, is_bf16 ? layout.hidden : layout.payload_row_bytes});
  activation::require_vector_start(kCall, "payload", payload);
  if (rows > INT32_MAX)
    refuse_call(ErrorKind::unsupported, kCall, "payload has {} rows; a GPU takes up to 2^31 - 1", rows);
  params.payload = payload.as<std::byte>();
  params.payload_row_bytes = static_cast<std::uint64_t>(layout.payload_row_bytes);
  params.capacity = static_cast<std::uint32_t>(rows);
}

void check_values(const RowLayout& layout, const Tensor& values, DecodeRowsParams& params) {
  if (!values) refuse_call(ErrorKind::invalid_argument, kCall, "values is not given");
  if (values.dtype != DType::bf16 && values.dtype != DType::f16 && values.dtype != DType::f32)
    refuse_call(ErrorKind::invalid_argument, kCall, "values has dtype {}; it must be bf16, f16 or f32",
                to_string(values.dtype));
  require("values", values, values.dtype, {params.capacity, layout.hidden});
  activation::require_vector_start(kCall, "values", values);
  params.values = values.as<std::byte>();
  params.dtype = values.dtype;
  params.hidden = layout.hidden;
}

// What says which rows hold a token.
void check_places(const RowLayout& layout, const DispatchOutput& rows, const DecodeOptions& options,
                  DecodeRowsParams& params) {
  params.order = options.row_order;
  params.groups = layout.groups;
  if (options.row_order == RowOrder::by_source) {
    require("source_offsets", rows.source_offsets, DType::u32, {layout.sources + 1});
    params.end = rows.source_offsets.as<std::uint32_t>() + layout.sources;
    return;
  }
  if (options.row_order == RowOrder::by_expert) {
    require("row_offsets", rows.row_offsets, DType::u32, {layout.groups + 1});
    require("src_info", rows.src_info, DType::i32, {params.capacity, 2});
    params.row_offsets = rows.row_offsets.as<std::uint32_t>();
    params.end = params.row_offsets + layout.groups;
    params.src_info = rows.src_info.as<std::int32_t>();
    return;
  }
  const std::int64_t stride = options.expert_stride == 0 ? layout.expert_rows : options.expert_stride;
  if (stride * layout.groups > params.capacity)
    refuse_call(ErrorKind::invalid_argument, kCall, "payload has {} rows; {} groups at expert_stride {} need {}",
                params.capacity, layout.groups, stride, stride * layout.groups);
  require("counts", rows.counts, DType::i32, {layout.groups});
  params.counts = rows.counts.as<std::int32_t>();
  params.stride = static_cast<std::uint32_t>(stride);
}

void check_scales(const AnyFormat& format, const RowLayout& layout, const DispatchOutput& rows,
                  const DecodeOptions& options, DecodeRowsParams& params) {
  if (layout.has_global_scales) {
    const DType dtype = rows.global_scales.dtype == DType::bf16 ? DType::bf16 : DType::f32;
    require("global_scales", rows.global_scales, dtype, {params.capacity});
    params.global_scales = GivenGlobalScales::of(rows.global_scales);
  }
  params.input_scale = options.input_scale;
  params.scales = {nullptr, layout.scale_layout, format.scale_bytes(), layout.scales_per_row, params.capacity};
  if (layout.scale_layout == ScaleLayout::none) return;
  require("scales", rows.scales, layout.scale_dtype,
          layout.scales_shape(params.capacity, options.row_order, options.expert_stride));
  params.scales.base = rows.scales.as<std::byte>();
  params.scale_elements = rows.scales.elements();
  if (options.row_order == RowOrder::padded && layout.scale_layout == ScaleLayout::transposed)
    params.scales.row_capacity = params.stride;
  if (layout.scale_layout != ScaleLayout::tiled || options.row_order == RowOrder::by_source) return;
  require("scales_offsets", rows.scales_offsets, DType::u32, {layout.groups});
  params.scales_offsets = rows.scales_offsets.as<std::uint32_t>();
}

// Only what the kernel reads; the others may be anywhere.
void require_memory(const CallMemory& memory, const DispatchOutput& rows, const Tensor& values,
                    const DecodeRowsParams& params) {
  memory.require("values", values);
  if (params.scales.base != nullptr) memory.require("scales", rows.scales);
  if (params.scales_offsets != nullptr) memory.require("scales_offsets", rows.scales_offsets);
  if (params.global_scales.are_given()) memory.require("global_scales", rows.global_scales);
  if (params.row_offsets != nullptr) memory.require("row_offsets", rows.row_offsets);
  if (params.src_info != nullptr) memory.require("src_info", rows.src_info);
  if (params.counts != nullptr) memory.require("counts", rows.counts);
  if (params.order == RowOrder::by_source) memory.require("source_offsets", rows.source_offsets);
  if (params.input_scale != nullptr) memory.require("input_scale", ConstTensor(params.input_scale, DType::f32, {1}));
}

const DecodeRowsLauncher& launcher_for(const AnyFormat& format) {
  if (const std::string why = why_without_values(format); !why.empty())
    refuse_call(ErrorKind::invalid_argument, kCall, "{}", why);
  const DecodeRowsLauncher* const launcher = find_decode_rows_launcher(format.name());
  if (launcher == nullptr)
    refuse_call(ErrorKind::unsupported, kCall,
                "the format {} is not one of the library's, which alone have kernels here; compiled_decode_rows "
                "(ferry/cuda/compiled_decode_rows.cuh) compiles that of another",
                format.name());
  return *launcher;
}

}  // namespace

void run_decode_rows(const AnyFormat& format, const DecodeRowsLauncher& launcher, const RowLayout& layout,
                     const DispatchOutput& rows, const Tensor& values, const DecodeOptions& options,
                     const CudaLaunch& launch) {
  check_options(format, layout, options, launch);
  if (rows.payload.rank == 2 && rows.payload.shape[0] == 0) return;
  DecodeRowsParams params;
  check_payload(layout, rows.payload, params);
  check_values(layout, values, params);
  check_places(layout, rows, options, params);
  check_scales(format, layout, rows, options, params);
  params.zero_padding = options.zero_padding;

  const CallMemory memory(kCall, "payload", rows.payload);
  require_memory(memory, rows, values, params);
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  memory.require_stream(stream);
  const DeviceScope scope(memory.device());
  launch_decode_rows(launcher, params, rows_grid(memory.device(), launch.max_blocks, stream));
}

}  // namespace cuda

void cuda_decode_rows(const AnyFormat& format, const RowLayout& layout, const DispatchOutput& rows,
                      const Tensor& values, const DecodeOptions& options, const CudaLaunch& launch) {
  cuda::run_decode_rows(format, cuda::launcher_for(format), layout, rows, values, options, launch);
}

void load_cuda_decode_rows(const AnyFormat& format) { cuda::load_decode_rows(cuda::launcher_for(format)); }

}  // namespace ferry
