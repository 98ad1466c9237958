#include "support/activation_case.h"

#include <algorithm>
#include <cmath>

#include "support/codec_oracle.h"

namespace ferry::test {

ActivationCase::ActivationCase(const AnyFormat& with, const ActivationShape& shape, unsigned seed)
    : format(with), shape_(shape) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  const std::size_t count = capacity() * 2 * static_cast<std::size_t>(shape_.inter);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (shape_.dtype == DType::f32) floats.push_back(value);
    if (shape_.dtype == DType::bf16) halves.push_back(bf16_nearest(value));
    // Any float16 with an exponent of 2^-9 to 2^2.
    if (shape_.dtype == DType::f16)
      halves.push_back(static_cast<std::uint16_t>((random() & 0x83ffu) | (6 + random() % 12) << 10));
  }
  std::uint32_t blocks = 0;
  for (int group = 0; group < groups(); ++group) {
    const std::uint32_t first = shape_.row_offsets[static_cast<std::size_t>(group)];
    scales_offsets.push_back(blocks - first / 128);
    blocks += (shape_.row_offsets[static_cast<std::size_t>(group) + 1] - first + 127) / 128;
  }
  payload.assign(capacity() * format.payload_bytes(shape_.inter) / 2, 0xa5a5);
  std::int64_t scale_count = 1;
  for (const std::int64_t extent : scales_shape()) scale_count *= extent;
  scales.assign(
      static_cast<std::size_t>(scale_count) * static_cast<std::size_t>(std::max(format.scale_bytes(), 1)) / 4 + 1,
      0xa5a5a5a5u);
}

std::vector<std::int64_t> ActivationCase::scales_shape() const {
  const std::int64_t per_row = scales_per_row(format, shape_.inter);
  const auto rows = static_cast<std::int64_t>(capacity());
  if (tiled()) return {(rows + 127) / 128 + groups(), (per_row + 3) / 4, 32, 4, 4};
  if (format.scale_layout() == ScaleLayout::transposed) return {per_row, rows};
  return {rows, per_row};
}

SwigluInput ActivationCase::input() const {
  SwigluInput in;
  const void* data = shape_.dtype == DType::f32 ? static_cast<const void*>(floats.data()) : halves.data();
  in.rows = ConstTensor(data, shape_.dtype, {static_cast<std::int64_t>(capacity()), 2 * shape_.inter});
  in.row_offsets = ConstTensor(shape_.row_offsets.data(), DType::u32, {groups() + 1});
  if (tiled()) in.scales_offsets = ConstTensor(scales_offsets.data(), DType::u32, {groups()});
  if (!input_scales.empty()) in.input_scales = ConstTensor(input_scales.data(), DType::f32, {groups()});
  return in;
}

SwigluOutput ActivationCase::output() {
  SwigluOutput out;
  const auto rows = static_cast<std::int64_t>(capacity());
  if (format.block() == 0) {
    out.payload = Tensor(payload.data(), DType::bf16, {rows, shape_.inter});
    return out;
  }
  out.payload =
      Tensor(payload.data(), DType::u8, {rows, static_cast<std::int64_t>(format.payload_bytes(shape_.inter))});
  const std::vector<std::int64_t> s = scales_shape();
  const DType dtype = format.scale_bytes() == 4 ? DType::f32 : DType::u8;
  out.scales = s.size() == 5 ? Tensor(scales.data(), dtype, {s[0], s[1], s[2], s[3], s[4]})
                             : Tensor(scales.data(), dtype, {s[0], s[1]});
  return out;
}

void ActivationCase::run() { swiglu(format, input(), output(), shape_.options); }

std::size_t ActivationCase::input_index(std::size_t row, std::size_t column, bool up) const {
  const auto inter = static_cast<std::size_t>(shape_.inter);
  const std::size_t in_row = shape_.options.interleaved ? 2 * column + (up ? 1 : 0) : column + (up ? inter : 0);
  return row * 2 * inter + in_row;
}

double ActivationCase::element(std::size_t index) const {
  if (shape_.dtype == DType::f32) return floats[index];
  if (shape_.dtype == DType::f16) return f16_value(halves[index]);
  const std::uint32_t bits = std::uint32_t{halves[index]} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void ActivationCase::set_gate_up(std::size_t row, std::size_t column, float gate, float up) {
  for (const bool is_up : {false, true}) {
    const std::size_t index = input_index(row, column, is_up);
    const float value = is_up ? up : gate;
    if (shape_.dtype == DType::f32)
      floats[index] = value;
    else
      halves[index] = std::isnan(value) ? std::uint16_t{0x7fff} : bf16_nearest(value);  // 0x7fff is a NaN in f16 too
  }
}

double ActivationCase::oracle(std::size_t row, std::size_t column) const {
  double gate = element(input_index(row, column, false));
  double up = element(input_index(row, column, true));
  if (!shape_.options.clamped) return gate / (1.0 + std::exp(-gate)) * up;
  const double limit = shape_.options.limit;
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return (up + 1.0) * gate / (1.0 + std::exp(-static_cast<double>(shape_.options.alpha) * gate));
}

double ActivationCase::sigmoid_argument(std::size_t row, std::size_t column) const {
  const double gate = element(input_index(row, column, false));
  const double limit = shape_.options.limit;
  return shape_.options.clamped ? static_cast<double>(shape_.options.alpha) * (gate > limit ? limit : gate) : gate;
}

std::size_t ActivationCase::group_of(std::size_t row) const {
  std::size_t group = 0;
  while (shape_.row_offsets[group + 1] <= row) ++group;
  return group;
}

float ActivationCase::input_scale(std::size_t row) const {
  return input_scales.empty() ? 1.0f : input_scales[group_of(row)];
}

std::size_t ActivationCase::scale_index(std::size_t row, std::size_t scale) const {
  const auto per_row = static_cast<std::size_t>(scales_per_row(format, shape_.inter));
  if (!tiled()) {
    return format.scale_layout() == ScaleLayout::transposed ? scale * capacity() + row : row * per_row + scale;
  }
  const std::size_t first = shape_.row_offsets[group_of(row)];
  const std::size_t j = row - first;
  const std::size_t block = static_cast<std::uint32_t>(first / 128 + scales_offsets[group_of(row)]) + j / 128;
  return (((block * ((per_row + 3) / 4) + scale / 4) * 32 + j % 32) * 4 + j % 128 / 32) * 4 + scale % 4;
}

Encoded ActivationCase::encoded_row(std::size_t row) const {
  Encoded encoded;
  const std::size_t bytes = format.payload_bytes(shape_.inter);
  const auto* codes = reinterpret_cast<const std::uint8_t*>(payload.data()) + row * bytes;
  encoded.payload.assign(codes, codes + bytes);
  const auto* stored = reinterpret_cast<const std::uint8_t*>(scales.data());
  const auto scale_bytes = static_cast<std::size_t>(format.scale_bytes());
  for (std::size_t s = 0; s < static_cast<std::size_t>(scales_per_row(format, shape_.inter)); ++s)
    for (std::size_t byte = 0; byte < scale_bytes; ++byte)
      encoded.scales.push_back(stored[scale_index(row, s) * scale_bytes + byte]);
  return encoded;
}

std::vector<float> ActivationCase::decoded_row(std::size_t row) const {
  const Encoded encoded = encoded_row(row);
  if (format.block() != 0)
    return oracle_decode(oracle_format(format.name()), OracleRow{encoded.payload, encoded.scales, 0}, shape_.inter,
                         input_scale(row));
  std::vector<float> values;
  for (std::size_t column = 0; column < static_cast<std::size_t>(shape_.inter); ++column) {
    const std::uint32_t bits =
        static_cast<std::uint32_t>(encoded.payload[2 * column] | encoded.payload[2 * column + 1] << 8) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    values.push_back(value);
  }
  return values;
}

}  // namespace ferry::test
