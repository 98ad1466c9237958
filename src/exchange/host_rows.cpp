#include "ferry/rows/host_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "ferry/detail/formats/format_check.h"
#include "ferry/detail/formats/row_sum.h"
#include "ferry/detail/layout/row_layout_check.h"
#include "ferry/detail/layout/scale_layout.h"

namespace ferry {
namespace {

constexpr std::uintptr_t kPayloadAlignment = 16;  // what formats ask of a payload (token_format.h)

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> what, Values&&... values) {
  throw Error(ErrorKind::invalid_argument, "decode_row: " + fmt::format(what, std::forward<Values>(values)...));
}

void require_readable(const char* name, const Tensor& tensor, DType dtype, std::span<const std::int64_t> shape) {
  if (!tensor) refuse("{} is not given", name);
  if (tensor.device.kind == Device::Kind::cuda)
    refuse("{} lies on {}; copy the rows to host memory first", name, to_string(tensor.device));
  if (tensor.dtype != dtype ||
      !std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.begin() + tensor.rank))
    refuse("{} is {}; it must be {}", name, to_string(tensor), to_string(ConstTensor(nullptr, dtype, shape)));
  if (!tensor.is_contiguous()) refuse("{} is not contiguous; it must be row-major without gaps", name);
}

// Dispatch also takes u8 where the payload is bf16.
void require_payload(const RowLayout& layout, const Tensor& payload) {
  const bool is_bf16 = payload.dtype == DType::bf16 && layout.payload_row_bytes == 2 * std::int64_t{layout.hidden};
  const std::int64_t columns = is_bf16 ? layout.hidden : layout.payload_row_bytes;
  const std::int64_t shape[] = {payload.rank == 2 ? payload.shape[0] : 0, columns};
  require_readable("payload", payload, is_bf16 ? DType::bf16 : DType::u8, shape);
}

const std::uint32_t* words_of(const char* name, const Tensor& tensor, std::int64_t count) {
  require_readable(name, tensor, DType::u32, std::span(&count, 1));
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(std::uint32_t) != 0)
    refuse("{} starts at {}; its address must be a multiple of {}", name, tensor.data, alignof(std::uint32_t));
  return tensor.as<std::uint32_t>();
}

// Where the scales of a row are; throws where the tensor does not fit the layout.
ScaleTensor scales_of(const AnyFormat& format, const RowLayout& layout, const Tensor& scales, std::int64_t capacity) {
  require_readable("scales", scales, layout.scale_dtype, layout.scales_shape(capacity));
  return {scales.as<std::byte>(), layout.scale_layout, format.scale_bytes(), layout.scales_per_row, capacity};
}

// The row's group, which tiles need.
ScaleRow place_of(const RowLayout& layout, const DispatchOutput& output, std::int64_t row) {
  if (layout.scale_layout != ScaleLayout::tiled) return {row};
  const std::uint32_t* offsets = words_of("row_offsets", output.row_offsets, layout.groups + 1);
  const std::uint32_t* scales_offsets = words_of("scales_offsets", output.scales_offsets, layout.groups);
  for (int group = 0; group < layout.groups; ++group)
    if (row >= offsets[group] && row < offsets[group + 1]) {
      const std::int64_t tile = std::int64_t{offsets[group] / kScaleTileRows + scales_offsets[group]} +
                                (row - offsets[group]) / kScaleTileRows;
      const std::int64_t tiles = output.scales.shape[0];
      if (tile >= tiles)
        refuse("scales_offsets of group {} is {}: row {} would be in tile {}; scales has {}", group,
               scales_offsets[group], row, tile, tiles);
      return {row, offsets[group], scales_offsets[group]};
    }
  refuse("row is {}; this dispatch laid out {}", row, offsets[layout.groups]);
}

// What the values of a row are multiplied by: 1 / g of its token (ExchangeOptions::dynamic_scales).
float factor_of(const RowLayout& layout, const DispatchOutput& output, std::int64_t row, std::int64_t capacity) {
  if (!layout.has_global_scales) return 1.0f;
  const DType dtype = output.global_scales.dtype == DType::bf16 ? DType::bf16 : DType::f32;
  require_readable("global_scales", output.global_scales, dtype, std::span(&capacity, 1));
  const std::byte* from = output.global_scales.as<std::byte>() + row * static_cast<std::int64_t>(size_of(dtype));
  float factor = 0;  // the tensor may start anywhere
  std::uint16_t narrow = 0;
  if (dtype == DType::f32) {
    std::memcpy(&factor, from, sizeof factor);
    return factor;
  }
  std::memcpy(&narrow, from, sizeof narrow);
  return bf16_to_float(narrow);
}

}  // namespace

void decode_row(const AnyFormat& format, const RowLayout& layout, const DispatchOutput& output, std::int64_t row,
                std::span<float> values, float input_scale) {
  if (const std::string why = why_without_values(format); !why.empty()) refuse("{}", why);
  if (const std::string why = why_other_format(format, layout); !why.empty()) refuse("{}", why);
  require_payload(layout, output.payload);
  const std::int64_t capacity = output.payload.shape[0];
  if (row < 0 || row >= capacity) refuse("row is {}; it must be 0 to {}", row, capacity - 1);
  if (static_cast<std::int64_t>(values.size()) != layout.hidden)
    refuse("values has {} elements; a row has {} columns", values.size(), layout.hidden);
  std::vector<std::byte> scales;
  if (layout.scale_layout != ScaleLayout::none) {
    const ScaleTensor tensor = scales_of(format, layout, output.scales, capacity);
    const ScaleRow at = place_of(layout, output, row);
    scales.resize(static_cast<std::size_t>(tensor.scales_per_row) * static_cast<std::size_t>(tensor.scale_bytes));
    for (int column = 0; column < tensor.scales_per_row; ++column)
      std::memcpy(scales.data() + column * tensor.scale_bytes,
                  tensor.base + scale_index(tensor, at, column) * tensor.scale_bytes,
                  static_cast<std::size_t>(tensor.scale_bytes));
  }
  const float factor = factor_of(layout, output, row, capacity);
  const std::byte* payload = output.payload.as<std::byte>() + row * layout.payload_row_bytes;
  std::vector<std::byte> aligned;
  if (reinterpret_cast<std::uintptr_t>(payload) % kPayloadAlignment != 0) {
    aligned.assign(payload, payload + layout.payload_row_bytes);
    payload = aligned.data();
  }
  format.decode(SerialGroup{}, payload, scales.data(), layout.hidden, input_scale, values.data());
  if (layout.has_global_scales)
    for (float& value : values) value *= factor;
}

HostRows::HostRows(const Exchange& exchange, int format)
    : HostRows(exchange.format(format), exchange.layout(format), exchange.layout(format).min_row_capacity) {}

HostRows::HostRows(const AnyFormat& format, const RowLayout& layout, std::int64_t row_capacity)
    : format_(format),
      layout_(layout),
      capacity_(row_capacity),
      results_(static_cast<std::size_t>(row_capacity) * static_cast<std::size_t>(layout.hidden)) {
  for (const TensorSpec& spec : dispatch_outputs(layout_, capacity_))
    arrivals_.*spec.field = {memory_.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
}

CombineInput HostRows::results() const {
  CombineInput in;
  in.rows = {results_.data(), DType::f32, {capacity_, layout_.hidden}};
  in.src_info = arrivals_.src_info;
  return in;
}

std::int64_t HostRows::begin_row(int group) const { return arrivals_.row_offsets.as<std::uint32_t>()[group]; }
std::int64_t HostRows::end_row(int group) const { return begin_row(group + 1); }
bool HostRows::has_token(std::int64_t row) const { return arrivals_.src_info.as<std::int32_t>()[2 * row] >= 0; }

void HostRows::decode(std::int64_t row, std::span<float> values, float input_scale) const {
  decode_row(format_, layout_, arrivals_, row, values, input_scale);
}

std::vector<float> HostRows::values(std::int64_t row, float input_scale) const {
  std::vector<float> values(static_cast<std::size_t>(layout_.hidden));
  decode(row, values, input_scale);
  return values;
}

}  // namespace ferry
