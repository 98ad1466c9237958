#include "tool/commands/codec/codec_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "ferry/error.h"
#include "tool/commands/options/options.h"
#include "tool/layer/dump/dump.h"
#include "tool/text/json.h"

namespace ferry::app {
namespace {

std::string in_folder(const std::string& folder, const char* name) { return fmt::format("{}/{}.npy", folder, name); }

// A view of a mapped file. decode_row only reads it.
Tensor tensor_of(const NpyFile& file, DType dtype) {
  return {const_cast<void*>(static_cast<const void*>(file.as<std::byte>())), dtype, file.shape()};
}

bool lie_as_in_a_dispatch(const NpyFile& scales, const AnyFormat& format, std::int64_t rows, int count) {
  if (format.scale_layout() == ScaleLayout::transposed) return scales.shape() == std::vector<std::int64_t>{count, rows};
  constexpr std::size_t kAxesOfTiles = 5;
  return scales.shape().size() == kAxesOfTiles;
}

}  // namespace

int hidden_of_payload(const NpyFile& payload, const AnyFormat& format) {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  const auto unit = static_cast<std::int64_t>(format.payload_bytes(kHiddenMultiple));
  const std::int64_t row = payload.extent(1);
  if (row < unit || row % unit != 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: a row has {} bytes, must be a multiple of {}: 32 columns of {}", payload.name(), row,
                            unit, format.name()));
  const std::int64_t hidden = row / unit * kHiddenMultiple;
  if (hidden > kMost)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: a row has {} columns, must have {} at most", payload.name(), hidden, kMost));
  return static_cast<int>(hidden);
}

DType scale_dtype(const AnyFormat& format) { return format.scale_bytes() == 4 ? DType::f32 : DType::u8; }

void require_scales(const NpyFile& scales, const AnyFormat& format, std::int64_t rows, int hidden) {
  scales.require_dtype({scale_dtype(format)});
  const int count = scales_per_row(format, hidden);
  if (scales.shape() != std::vector<std::int64_t>{rows, count} && lie_as_in_a_dispatch(scales, format, rows, count))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: shape is {}, must be [{}, {}]; so lie the scales of a dispatch, {}: decode a rank's "
                            "folder of `ferry layer --dump` by --dump DIR",
                            scales.name(), shape_text(scales.shape()), rows, count, to_string(format.scale_layout())));
  scales.require_shape({rows, count}, "[rows, scales of a row]");
}

std::optional<DumpedFormat> format_of_dump(const std::string& folder) {
  const std::string name = fmt::format("{}/{}", folder, kFormatFile);
  std::ifstream file(name);
  if (!file) return {};
  try {
    const Json said = Json::parse({std::istreambuf_iterator<char>(file), {}});
    const std::string format = format_named(said["format"].text()).name();
    const auto input_scale = static_cast<float>(Json::array({said["input_scale"]}).numbers().front());
    if (!std::isfinite(input_scale) || input_scale <= 0) throw std::domain_error("no input scale");
    return DumpedFormat{format, input_scale};
  } catch (const std::exception&) {
    throw Error(ErrorKind::invalid_argument, fmt::format("--dump {}: is not as `ferry layer --dump` writes it", name));
  }
}

void require_format_of_dump(const AnyFormat& format, float input_scale, const std::string& folder) {
  const std::optional<DumpedFormat> dumped = format_of_dump(folder);
  if (!dumped) return;
  if (dumped->name != format.name())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--format {}: the rows of --dump {} are in {}: leave --format out", format.name(), folder,
                            dumped->name));
  if (format.takes_input_scale() && dumped->input_scale != input_scale)
    note(fmt::format("--input-scale {}: the rows of --dump {} were encoded with {}", input_scale, folder,
                     dumped->input_scale));
}

DumpedRows::DumpedRows(const AnyFormat& format, const std::string& folder)
    : format_(format),
      payload_("--dump", in_folder(folder, "payload")),
      row_offsets_("--dump", in_folder(folder, "row_offsets")) {
  payload_.require_dtype({DType::u8});
  payload_.require_shape({-1, -1}, "[rows, bytes of a row]");
  row_offsets_.require_dtype({DType::u32});
  row_offsets_.require_shape({-1}, "[groups + 1]");
  layout_.groups = static_cast<int>(row_offsets_.extent(0)) - 1;
  layout_.hidden = hidden_of_payload(payload_, format);
  layout_.payload_row_bytes = payload_.extent(1);
  layout_.scales_per_row = scales_per_row(format, layout_.hidden);
  layout_.scale_layout = format.scale_layout();
  const std::uint32_t rows_of_all = layout_.groups < 0 ? 0 : row_offsets_.as<std::uint32_t>()[layout_.groups];
  if (layout_.groups < 1 || rows_of_all != rows())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: its last entry is {}, must be the number of rows of {}, {}", row_offsets_.name(),
                            rows_of_all, payload_.name(), rows()));
  output_.payload = tensor_of(payload_, DType::u8);
  output_.row_offsets = tensor_of(row_offsets_, DType::u32);
  if (layout_.scale_layout != ScaleLayout::none) take_scales(folder);
}

void DumpedRows::take_scales(const std::string& folder) {
  const NpyFile scales("--dump", in_folder(folder, "scales"));
  layout_.scale_dtype = scale_dtype(format_);
  scales.require_dtype({layout_.scale_dtype});
  std::vector<std::int64_t> shape = layout_.scales_shape(rows());
  const std::vector<std::int64_t> of_dispatch = shape;
  if (layout_.scale_layout == ScaleLayout::tiled) {
    scales_offsets_.emplace("--dump", in_folder(folder, "scales_offsets"));
    scales_offsets_->require_dtype({DType::u32});
    scales_offsets_->require_shape({layout_.groups}, "[groups]");
    output_.scales_offsets = tensor_of(*scales_offsets_, DType::u32);
    if (!scales.shape().empty() && scales.extent(0) <= shape[0]) shape[0] = scales.extent(0);
  }
  if (scales.shape() != shape)
    throw Error(ErrorKind::invalid_argument, fmt::format("{}: shape is {}, must be {}, {}, as of a dispatch in {}",
                                                         scales.name(), shape_text(scales.shape()), shape_text(shape),
                                                         to_string(layout_.scale_layout), format_.name()));
  const auto elements = static_cast<std::size_t>(
      std::accumulate(of_dispatch.begin(), of_dispatch.end(), std::int64_t{1}, std::multiplies<>()));
  scales_ = Pages(elements * size_of(layout_.scale_dtype));
  std::copy_n(scales.as<std::byte>(), scales.data_bytes(), scales_.data());
  output_.scales = Tensor(scales_.data(), layout_.scale_dtype, of_dispatch);
}

void DumpedRows::decode(std::int64_t row, std::span<float> values, float input_scale) const {
  decode_row(format_, layout_, output_, row, values, input_scale);
}

}  // namespace ferry::app
