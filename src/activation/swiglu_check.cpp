// One refusal per argument of swiglu, in the order of the arguments.
#include "ferry/detail/activation/swiglu_check.h"

#include <fmt/core.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ferry/detail/activation/call_tensor.h"
#include "ferry/detail/formats/format_check.h"
#include "ferry/error.h"
#include "ferry/shape.h"

namespace ferry::activation {
namespace {

template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Error(ErrorKind::invalid_argument, "swiglu: " + fmt::format(text, std::forward<Arguments>(arguments)...));
}

void require_tensor(const char* name, const ConstTensor& tensor, const ConstTensor& expected) {
  activation::require_tensor("swiglu", name, tensor, expected);
}

// Where the tensor's owner says where it lies. cuda_swiglu compares the GPUs themselves.
void require_memory(const char* name, const ConstTensor& tensor, TensorMemory memory) {
  if (!tensor) return;
  if (memory == TensorMemory::host && tensor.device.kind == Device::Kind::cuda)
    refuse("{} is memory of {}; swiglu takes host memory, and cuda_swiglu memory of a GPU", name,
           to_string(tensor.device));
  if (memory == TensorMemory::device && tensor.device.kind == Device::Kind::cpu)
    refuse("{} is host memory; it must be memory of a GPU", name);
}

void require_memory(const SwigluInput& in, const SwigluOutput& out, TensorMemory memory) {
  require_memory("rows", in.rows, memory);
  require_memory("row_offsets", in.row_offsets, memory);
  require_memory("scales_offsets", in.scales_offsets, memory);
  require_memory("input_scales", in.input_scales, memory);
  require_memory("payload", out.payload, memory);
  require_memory("scales", out.scales, memory);
}

ConstTensor wanted(DType dtype, std::initializer_list<std::int64_t> shape) { return {nullptr, dtype, shape}; }

void check_options(const AnyFormat& format, const SwigluOptions& options) {
  if (const std::string why = why_invalid(format); !why.empty()) refuse("{}", why);
  if (const std::string why = why_without_values(format); !why.empty()) refuse("{}", why);
  const bool may_tile =
      format.scale_layout() == ScaleLayout::tiled || (format.scale_bytes() == 1 && format.block() == 32);
  if (options.tiled_scales && !may_tile)
    refuse("tiled_scales needs one-byte scales of 32 columns (mxfp8); the format is {}", format.name());
  if (!options.clamped) return;
  if (!std::isfinite(options.alpha)) refuse("alpha is {}; it must be finite", options.alpha);
  if (!std::isfinite(options.limit) || options.limit <= 0)
    refuse("limit is {}; it must be finite and greater than 0", options.limit);
}

void check_rows(const ConstTensor& rows, SwigluWork& work) {
  if (!rows) refuse("rows is not given");
  if (rows.dtype != DType::bf16 && rows.dtype != DType::f16 && rows.dtype != DType::f32)
    refuse("rows has dtype {}; it must be bf16, f16 or f32", to_string(rows.dtype));
  if (rows.rank != 2) refuse("rows is {}; it must be [row_capacity, 2 * inter]", to_string(rows));
  const std::int64_t columns = rows.shape[1];
  if (columns <= 0 || columns % (2 * kHiddenMultiple) != 0 || columns > INT32_MAX)
    refuse("rows has {} columns; it must have 2 * inter, with inter a positive multiple of {}", columns,
           kHiddenMultiple);
  require_tensor("rows", rows, wanted(rows.dtype, {rows.shape[0], columns}));
  work.rows = static_cast<const std::byte*>(rows.data);
  work.dtype = rows.dtype;
  work.inter = static_cast<int>(columns / 2);
}

void check_row_offsets(const ConstTensor& offsets, SwigluWork& work) {
  if (!offsets) refuse("row_offsets is not given");
  if (offsets.rank != 1 || offsets.shape[0] < 2)
    refuse("row_offsets is {}; it must be u32 [groups + 1] with one group or more", to_string(offsets));
  require_tensor("row_offsets", offsets, wanted(DType::u32, {offsets.shape[0]}));
  work.groups = static_cast<int>(offsets.shape[0] - 1);
  work.row_offsets = static_cast<const std::uint32_t*>(offsets.data);
}

void check_row_offset_values(std::int64_t row_capacity, const SwigluWork& work) {
  if (work.row_offsets[0] != 0) refuse("row_offsets[0] is {}; the first group starts at row 0", work.row_offsets[0]);
  for (int group = 0; group < work.groups; ++group)
    if (work.row_offsets[group + 1] < work.row_offsets[group])
      refuse("row_offsets[{}] is {}, less than row_offsets[{}], {}; they must not fall", group + 1,
             work.row_offsets[group + 1], group, work.row_offsets[group]);
  if (work.row_offsets[work.groups] > row_capacity)
    refuse("row_offsets[{}] is {}; rows holds {} rows", work.groups, work.row_offsets[work.groups], row_capacity);
}

// Each group's tiles lie in the tensor, after those of the group before.
void check_scales_offset_values(std::int64_t row_capacity, const SwigluWork& work) {
  if (work.scales_offsets == nullptr) return;
  const std::int64_t tiles = scale_blocks(row_capacity) + work.groups;
  std::int64_t free_from = 0;
  for (int group = 0; group < work.groups; ++group) {
    const std::int64_t rows = work.row_offsets[group + 1] - work.row_offsets[group];
    if (rows == 0) continue;
    const std::int64_t first = work.row_offsets[group] / kScaleTileRows + work.scales_offsets[group];
    const std::int64_t end = first + scale_blocks(rows);
    if (first < free_from || end > tiles)
      refuse("scales_offsets[{}] is {}, which puts the group's scales in tiles {} to {}; they must lie in {} to {}",
             group, work.scales_offsets[group], first, end - 1, free_from, tiles - 1);
    free_from = end;
  }
}

void check_input_scales(const AnyFormat& format, const ConstTensor& scales, SwigluWork& work) {
  if (!scales) return;
  for (const AnyFormat& known : all_formats())
    if (known == format && std::string_view(format.name()) != "nvfp4")
      refuse("input_scales is given; the format {} takes none (nvfp4 does)", format.name());
  require_tensor("input_scales", scales, wanted(DType::f32, {work.groups}));
  work.input_scales = static_cast<const float*>(scales.data);
}

void check_input_scale_values(const SwigluWork& work) {
  for (int group = 0; work.input_scales != nullptr && group < work.groups; ++group)
    if (!std::isfinite(work.input_scales[group]) || work.input_scales[group] <= 0)
      refuse("input_scales[{}] is {}; it must be finite and greater than 0", group, work.input_scales[group]);
}

void check_payload(const AnyFormat& format, const Tensor& payload, std::int64_t row_capacity, SwigluWork& work) {
  work.payload_row_bytes = format.payload_bytes(work.inter);
  const bool as_bf16 = payload.dtype != DType::u8 && std::string_view(format.name()) == "bf16";
  if (as_bf16)
    require_tensor("payload", payload, wanted(DType::bf16, {row_capacity, work.inter}));
  else
    require_tensor("payload", payload,
                   wanted(DType::u8, {row_capacity, static_cast<std::int64_t>(work.payload_row_bytes)}));
  work.payload = static_cast<std::byte*>(payload.data);
  const std::byte* payload_end = work.payload + static_cast<std::size_t>(row_capacity) * work.payload_row_bytes;
  const std::byte* rows_end = work.rows + static_cast<std::size_t>(row_capacity) * 2 *
                                              static_cast<std::size_t>(work.inter) * size_of(work.dtype);
  if (work.payload < rows_end && work.rows < payload_end) refuse("payload shares memory with rows; they must be apart");
}

void check_scales(const AnyFormat& format, const SwigluInput& in, const Tensor& scales, bool tiled,
                  std::int64_t row_capacity, SwigluWork& work) {
  ScaleTensor& tensor = work.scales;
  tensor.layout = tiled ? ScaleLayout::tiled : format.scale_layout();
  tensor.scale_bytes = format.scale_bytes();
  tensor.scales_per_row = scales_per_row(format, work.inter);
  tensor.row_capacity = row_capacity;
  if (tensor.layout == ScaleLayout::none) {
    if (scales) refuse("scales is given ({}); the format {} has none", to_string(scales), format.name());
  } else {
    const std::int64_t tiles = scale_blocks(row_capacity) + work.groups;
    const std::int64_t per_row = tensor.scales_per_row;
    const DType dtype = tensor.scale_bytes == 4 ? DType::f32 : DType::u8;
    if (tensor.layout == ScaleLayout::tiled)
      require_tensor("scales", scales, wanted(dtype, {tiles, (per_row + 3) / 4, 32, 4, 4}));
    else if (tensor.layout == ScaleLayout::transposed)
      require_tensor("scales", scales, wanted(dtype, {per_row, row_capacity}));
    else
      require_tensor("scales", scales, wanted(dtype, {row_capacity, per_row}));
    tensor.base = static_cast<std::byte*>(scales.data);
  }
  if (tensor.layout == ScaleLayout::tiled) {
    require_tensor("scales_offsets", in.scales_offsets, wanted(DType::u32, {work.groups}));
    work.scales_offsets = static_cast<const std::uint32_t*>(in.scales_offsets.data);
  } else if (in.scales_offsets) {
    refuse("scales_offsets is given; only tiled scales have it, these are {}", to_string(tensor.layout));
  }
}

}  // namespace

SwigluWork check_swiglu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out,
                        const SwigluOptions& options, TensorMemory memory) {
  const bool on_host = memory == TensorMemory::host;
  SwigluWork work;
  check_options(format, options);
  require_memory(in, out, memory);
  check_rows(in.rows, work);
  const std::int64_t row_capacity = in.rows.shape[0];
  check_row_offsets(in.row_offsets, work);
  if (on_host) check_row_offset_values(row_capacity, work);
  check_payload(format, out.payload, row_capacity, work);
  check_scales(format, in, out.scales, options.tiled_scales, row_capacity, work);
  if (on_host) check_scales_offset_values(row_capacity, work);
  check_input_scales(format, in.input_scales, work);
  if (on_host) check_input_scale_values(work);
  if (!on_host) {
    require_vector_start("swiglu", "rows", in.rows);
    require_vector_start("swiglu", "payload", out.payload);
  }
  return work;
}

}  // namespace ferry::activation
