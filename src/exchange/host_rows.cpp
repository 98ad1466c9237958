#include "ferry/host_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "ferry/detail/layout/scale_layout.h"

namespace ferry {
namespace {

constexpr std::uintptr_t kPayloadAlignment = 16;  // what formats ask of a payload (token_format.h)

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> what, Values&&... values) {
  throw Error(ErrorKind::invalid_argument, "decode_row: " + fmt::format(what, std::forward<Values>(values)...));
}

void require_readable(const char* name, const Tensor& tensor) {
  if (!tensor) refuse("{} is not given", name);
  if (tensor.device.kind == Device::Kind::cuda)
    refuse("{} lies on {}; copy the rows to host memory first", name, to_string(tensor.device));
}

// Where the scales of a row are; throws where the tensor does not fit the layout.
ScaleTensor scales_of(const AnyFormat& format, const RowLayout& layout, const Tensor& scales, std::int64_t capacity) {
  require_readable("scales", scales);
  const std::vector<std::int64_t> shape = layout.scales_shape(capacity);
  if (!std::equal(shape.begin(), shape.end(), scales.shape.begin(), scales.shape.begin() + scales.rank))
    refuse("scales is {}; for a capacity of {} rows it must be {}", to_string(scales), capacity,
           to_string(ConstTensor(nullptr, layout.scale_dtype, std::span(shape))));
  return {scales.as<std::byte>(), layout.scale_layout, format.scale_bytes(), layout.scales_per_row, capacity};
}

// The row's group, which tiles need.
ScaleRow place_of(const RowLayout& layout, const DispatchOutput& output, std::int64_t row) {
  if (layout.scale_layout != ScaleLayout::tiled) return {row};
  require_readable("row_offsets", output.row_offsets);
  require_readable("scales_offsets", output.scales_offsets);
  const auto* offsets = output.row_offsets.as<std::uint32_t>();
  for (int group = 0; group < layout.groups; ++group)
    if (row >= offsets[group] && row < offsets[group + 1])
      return {row, offsets[group], output.scales_offsets.as<std::uint32_t>()[group]};
  refuse("row is {}; this dispatch laid out {}", row, offsets[layout.groups]);
}

}  // namespace

void decode_row(const AnyFormat& format, const RowLayout& layout, const DispatchOutput& output, std::int64_t row,
                std::span<float> values, float input_scale) {
  require_readable("payload", output.payload);
  const std::int64_t capacity = output.payload.shape[0];
  if (row < 0 || row >= capacity) refuse("row is {}; it must be 0 to {}", row, capacity - 1);
  if (static_cast<std::int64_t>(values.size()) != layout.hidden)
    refuse("values has {} elements; a row has {} columns", values.size(), layout.hidden);
  if (format.payload_bytes(layout.hidden) != static_cast<std::size_t>(layout.payload_row_bytes))
    refuse("the rows are of another format than {}", format.name());
  std::vector<std::byte> scales;
  if (layout.scale_layout != ScaleLayout::none) {
    const ScaleTensor place = scales_of(format, layout, output.scales, capacity);
    const ScaleRow at = place_of(layout, output, row);
    scales.resize(static_cast<std::size_t>(place.scales_per_row) * static_cast<std::size_t>(place.scale_bytes));
    for (int column = 0; column < place.scales_per_row; ++column)
      std::memcpy(scales.data() + column * place.scale_bytes,
                  place.base + scale_index(place, at, column) * place.scale_bytes,
                  static_cast<std::size_t>(place.scale_bytes));
  }
  const std::byte* payload = output.payload.as<std::byte>() + row * layout.payload_row_bytes;
  std::vector<std::byte> aligned;
  if (reinterpret_cast<std::uintptr_t>(payload) % kPayloadAlignment != 0) {
    aligned.assign(payload, payload + layout.payload_row_bytes);
    payload = aligned.data();
  }
  format.decode(SerialGroup{}, payload, scales.data(), layout.hidden, input_scale, values.data());
}

HostRows::HostRows(const Exchange& exchange)
    : HostRows(exchange.options().format, exchange.layout(), exchange.layout().min_row_capacity) {}

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
