#include "decoded_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "ferry/detail/formats/rounded.h"
#include "ferry/detail/layout/scale_layout.h"

namespace ferry::test {
namespace {

constexpr int kGroups = 4;
constexpr int kSources = 2;

RowLayout layout_of(const AnyFormat& format, const DecodedShape& shape) {
  const auto most = static_cast<int>(*std::max_element(shape.rows.begin(), shape.rows.end()));
  const Shape of_exchange{.ranks = kSources,
                          .experts = kSources * kGroups,
                          .top_k = 2,
                          .max_tokens = most / kSources + 1,
                          .hidden = shape.hidden};
  return row_layout(of_exchange,
                    {.format = format, .tiled_scales = shape.tiled_scales, .dynamic_scales = shape.dynamic_scales}, 0);
}

// Float32 scales are numbers of all sizes, now and then a NaN; the bytes of others are any.
void fill_scales(std::mt19937& random, DType dtype, std::vector<std::byte>& bytes) {
  if (dtype != DType::f32) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return;
  }
  auto* const scales = reinterpret_cast<float*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i)
    scales[i] = random() % 50 == 0
                    ? std::numeric_limits<float>::quiet_NaN()
                    : std::bit_cast<float>(0x3A800000u + static_cast<std::uint32_t>(random() & 0x6FFFFFFu));
}

// A value in the dtype, as its bits in the low end; every NaN alike.
std::uint32_t rounded(float value, DType dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0xffffffffu;
  if (dtype == DType::bf16) return codec::bf16_of(bits);
  return dtype == DType::f16 ? codec::f16_of(bits) : bits;
}
std::uint32_t stored(const std::byte* at, DType dtype) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, size_of(dtype));
  const std::uint32_t magnitude = bits & (dtype == DType::f32 ? 0x7fffffffu : 0x7fffu);
  const std::uint32_t infinity = dtype == DType::f32 ? 0x7f800000u : dtype == DType::bf16 ? 0x7f80u : 0x7c00u;
  return magnitude > infinity ? 0xffffffffu : bits;
}

}  // namespace

DecodedCase::DecodedCase(const AnyFormat& of_format, const DecodedShape& of_shape, unsigned seed)
    : format(of_format), shape(of_shape), layout(layout_of(format, shape)) {
  capacity = shape.order == RowOrder::padded ? stride() * layout.groups
                                             : std::accumulate(shape.rows.begin(), shape.rows.end(), std::int64_t{0});
  capacity += shape.spare_rows;
  for (const TensorSpec& spec : dispatch_outputs(layout, capacity, shape.order))
    outputs_.push_back({spec, std::vector<std::byte>(spec.bytes()), nullptr});
  fill(seed);
  set_rows(shape.rows);
  copy();
  const std::vector<std::byte> nothing(static_cast<std::size_t>((capacity + 1) * layout.hidden) * size_of(shape.dtype),
                                       kPoison);
  values_ = std::make_unique<DeviceCopy>(nothing.data(), nothing.size());
  input_scale_ = std::make_unique<DeviceCopy>(&shape.input_scale, sizeof shape.input_scale);
}

DecodedCase::Held& DecodedCase::held(TensorSpec::Field field) {
  return *std::find_if(outputs_.begin(), outputs_.end(), [&](const Held& each) { return each.spec.field == field; });
}

void DecodedCase::fill(unsigned seed) {
  std::mt19937 random(seed);
  for (std::byte& byte : held(&DispatchOutput::payload).host) byte = static_cast<std::byte>(random());
  if (layout.scale_layout != ScaleLayout::none)
    fill_scales(random, layout.scale_dtype, held(&DispatchOutput::scales).host);
  if (layout.has_global_scales) fill_global_scales(random);
  is_padding_.resize(static_cast<std::size_t>(capacity));
  for (std::size_t row = 0; shape.order == RowOrder::by_expert && row < is_padding_.size(); ++row)
    is_padding_[row] = random() % 5 == 0;
}

void DecodedCase::fill_global_scales(std::mt19937& random) {
  Held& scales = held(&DispatchOutput::global_scales);
  fill_scales(random, DType::f32, scales.host);
  if (!shape.narrow_global_scales) return;
  scales.spec.dtype = DType::bf16;
  std::vector<std::byte> narrow(scales.host.size() / 2);
  for (std::size_t row = 0; row < narrow.size() / 2; ++row) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, scales.host.data() + 4 * row, sizeof bits);
    const auto rounded_bits = static_cast<std::uint16_t>(codec::bf16_of(bits));
    std::memcpy(narrow.data() + 2 * row, &rounded_bits, sizeof rounded_bits);
  }
  scales.host = std::move(narrow);
}

void DecodedCase::set_rows(const std::vector<std::uint32_t>& rows) {
  rows_ = rows;
  const auto starts = [&](std::uint32_t* offsets) {
    offsets[0] = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) offsets[i + 1] = offsets[i] + rows[i];
  };
  if (shape.order == RowOrder::by_source) return starts(host<std::uint32_t>(&DispatchOutput::source_offsets));
  auto* const offsets = host<std::uint32_t>(&DispatchOutput::row_offsets);
  if (shape.order == RowOrder::by_expert) {
    starts(offsets);
    for (std::int64_t row = 0; row < capacity; ++row)
      host<std::int32_t>(&DispatchOutput::src_info)[2 * row] = holds_token(row) ? 7 : -1;
  } else {
    for (int group = 0; group <= kGroups; ++group) offsets[group] = static_cast<std::uint32_t>(group * stride());
    for (std::size_t group = 0; group < kGroups; ++group)
      host<std::int32_t>(&DispatchOutput::counts)[group] = static_cast<std::int32_t>(rows[group]);
  }
  std::int64_t tiles = 0;
  for (int group = 0; layout.scale_layout == ScaleLayout::tiled && group < kGroups; ++group) {
    host<std::uint32_t>(&DispatchOutput::scales_offsets)[group] = scales_offset_of(tiles, offsets[group]);
    tiles += scale_blocks(offsets[group + 1] - offsets[group]);
  }
}

void DecodedCase::copy() {
  for (Held& each : outputs_) {
    if (each.device)
      each.device->write(each.host.data());
    else
      each.device = std::make_unique<DeviceCopy>(each.host.data(), each.host.size());
  }
}

bool DecodedCase::holds_token(std::int64_t row) const {
  if (shape.order == RowOrder::padded)
    return row < stride() * kGroups && row % stride() < rows_[static_cast<std::size_t>(row / stride())];
  return row < std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0}) &&
         !is_padding_[static_cast<std::size_t>(row)];
}

DispatchOutput DecodedCase::on_device() const {
  DispatchOutput out;
  for (const Held& each : outputs_) out.*each.spec.field = {each.device->data(), each.spec.dtype, each.spec.shape};
  return out;
}
DispatchOutput DecodedCase::on_host() const {
  DispatchOutput out;
  for (const Held& each : outputs_)
    out.*each.spec.field = {const_cast<std::byte*>(each.host.data()), each.spec.dtype, each.spec.shape};
  return out;
}
Tensor DecodedCase::values() const { return {values_->data(), shape.dtype, {capacity, layout.hidden}}; }
DecodeOptions DecodedCase::options() const {
  return {.row_order = shape.order,
          .input_scale = shape.input_scale == 1.0f ? nullptr : static_cast<const float*>(input_scale_->data()),
          .zero_padding = shape.zero_padding};
}

// decode_row knows rows by_expert. Those by_source are one group of tiles, and transposed scales of padded rows a
// tensor for each group.
std::vector<float> DecodedCase::decoded(std::int64_t row) const {
  DispatchOutput out = on_host();
  std::vector<float> values(static_cast<std::size_t>(layout.hidden));
  std::vector<std::uint32_t> one_group(kGroups + 1, static_cast<std::uint32_t>(capacity)), no_offsets(kGroups);
  one_group[0] = 0;
  if (shape.order == RowOrder::by_source) {
    out.row_offsets = {one_group.data(), DType::u32, {kGroups + 1}};
    out.scales_offsets = {no_offsets.data(), DType::u32, {kGroups}};
  }
  std::int64_t at = row;
  if (shape.order == RowOrder::padded && layout.scale_layout == ScaleLayout::transposed) {
    const std::int64_t group = row / stride();
    at = row % stride();
    out.payload = {out.payload.as<std::byte>() + group * stride() * layout.payload_row_bytes,
                   out.payload.dtype,
                   {stride(), out.payload.shape[1]}};
    out.scales = {out.scales.as<float>() + group * layout.scales_per_row * stride(),
                  DType::f32,
                  {layout.scales_per_row, stride()}};
    if (out.global_scales)
      out.global_scales = {out.global_scales.as<std::byte>() +
                               group * stride() * static_cast<std::int64_t>(size_of(out.global_scales.dtype)),
                           out.global_scales.dtype,
                           {stride()}};
  }
  decode_row(format, layout, out, at, values, shape.input_scale);
  return values;
}

std::string DecodedCase::first_wrong() const {
  cuda_ok(cudaDeviceSynchronize());
  const std::size_t bytes = size_of(shape.dtype);
  std::vector<std::byte> got(static_cast<std::size_t>((capacity + 1) * layout.hidden) * bytes);
  values_->read(got.data());
  const std::vector<std::byte> poison(bytes, kPoison);
  for (std::int64_t row = 0; row <= capacity; ++row) {
    const bool has = row < capacity && holds_token(row);
    const std::vector<float> values = has ? decoded(row) : std::vector<float>(static_cast<std::size_t>(layout.hidden));
    const bool untouched = row == capacity || (!has && !shape.zero_padding);
    for (int column = 0; column < layout.hidden; ++column) {
      const std::uint32_t want = untouched ? stored(poison.data(), shape.dtype)
                                           : rounded(values[static_cast<std::size_t>(column)], shape.dtype);
      const std::uint32_t is =
          stored(got.data() + static_cast<std::size_t>(row * layout.hidden + column) * bytes, shape.dtype);
      if (is == want) continue;
      return std::string(format.name()) + " " + to_string(shape.order) + ", hidden " + std::to_string(layout.hidden) +
             ", " + to_string(shape.dtype) + ": row " + std::to_string(row) + " of " + std::to_string(capacity) +
             " column " + std::to_string(column) + " has bits " + std::to_string(is) + " in place of " +
             std::to_string(want) + (has ? "" : ", without a token");
    }
  }
  return {};
}

void DecodedCase::poison_values() const {
  const std::vector<std::byte> nothing(static_cast<std::size_t>((capacity + 1) * layout.hidden) * size_of(shape.dtype),
                                       kPoison);
  values_->write(nothing.data());
}

}  // namespace ferry::test
