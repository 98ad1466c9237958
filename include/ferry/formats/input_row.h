// InputRow: a token to encode, as bf16, float16 or float32, and the float32 values of its columns.
#pragma once

#include <cstdint>

#include "ferry/formats/portable.h"
#include "ferry/tensor.h"

namespace ferry {

// `hidden` contiguous elements of bf16, f16 or f32. A view.
struct InputRow {
  const void* data;
  DType dtype;
};

// The float32 bits that an element stands for. Exact, and without a branch.
FERRY_HD constexpr std::uint32_t float_bits_of_bf16(std::uint16_t bf16) { return std::uint32_t{bf16} << 16; }
FERRY_HD constexpr std::uint32_t float_bits_of_f16(std::uint16_t f16) {
  const std::uint32_t magnitude = f16 & 0x7fffu;
  const std::uint32_t field = magnitude >> 10;
  const std::uint32_t exponent = field == 0 ? 1u : field;  // subnormals have the exponent of the smallest normals
  const auto steps = static_cast<float>(static_cast<std::int32_t>(magnitude - ((exponent - 1u) << 10)));
  const float value = steps * __builtin_bit_cast(float, (exponent + 102u) << 23);
  const std::uint32_t infinity_or_nan = 0u - static_cast<std::uint32_t>(magnitude >= 0x7c00u);
  const std::uint32_t sign = std::uint32_t{f16 & 0x8000u} << 16;
  return __builtin_bit_cast(std::uint32_t, value) | (infinity_or_nan & 0x7f800000u) | sign;
}

// The value of a column: what a format starts from.
FERRY_HD inline float value_at(InputRow row, int column) {
  if (row.dtype == DType::f32) return static_cast<const float*>(row.data)[column];
  const std::uint16_t stored = static_cast<const std::uint16_t*>(row.data)[column];
  return __builtin_bit_cast(float, row.dtype == DType::f16 ? float_bits_of_f16(stored) : float_bits_of_bf16(stored));
}

}  // namespace ferry
