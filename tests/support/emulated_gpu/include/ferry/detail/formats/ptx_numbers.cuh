// ptx_numbers.cuh for emulated GPUs: what the instructions of a Hopper GPU give, in plain arithmetic.
#pragma once

#include <cmath>
#include <cstdint>

#include "ferry/formats/input_row.h"

namespace ferry::ptx {

inline constexpr bool kHasByteFloats = true;
inline constexpr bool kHasSmallFloats = false;

namespace in_software {

inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// To nearest even, at most the largest finite value.
inline std::uint32_t to_byte_float(float value, int mantissa, int bias, std::uint32_t largest) {
  const std::uint32_t sign = bits_of(value) >> 31 << 7;
  if (std::isnan(value)) return 0x7fu;
  const float magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return largest | sign;
  const int exponent = magnitude == 0.0f ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa - exponent)));
  const auto code = (static_cast<std::uint32_t>(exponent + bias - 1) << mantissa) + steps;
  return std::min(code, largest) | sign;
}
inline std::uint32_t to_e4m3(float value) { return to_byte_float(value, 3, 7, 0x7eu); }
inline std::uint32_t to_e5m2(float value) { return to_byte_float(value, 2, 15, 0x7bu); }
inline std::uint32_t to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  return std::isnan(value) ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline std::uint32_t to_f16(float value) {
  const std::uint32_t sign = bits_of(value) >> 31 << 15;
  if (std::isnan(value)) return 0x7fffu;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65536.0f) return 0x7c00u | sign;
  const int exponent = magnitude == 0.0f ? -14 : std::max(std::ilogb(magnitude), -14);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return ((static_cast<std::uint32_t>(exponent + 14) << 10) + steps) | sign;
}
inline std::uint32_t four(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return a | b << 8 | c << 16 | d << 24;
}

}  // namespace in_software

inline std::uint32_t two_bf16(float first, float second) {
  return in_software::to_bf16(first) | in_software::to_bf16(second) << 16;
}
inline std::uint32_t two_f16(float first, float second) {
  return in_software::to_f16(first) | in_software::to_f16(second) << 16;
}
// Subnormal numbers are zeros, and some estimates are one unit of the last place away.
inline float reciprocal_estimate(float x) {
  constexpr float kLeast = 0x1p-126f;
  if (std::fabs(x) < kLeast) return std::copysign(INFINITY, x);
  const float nearest = 1.0f / x;
  if (std::fabs(nearest) < kLeast) return std::copysign(0.0f, x);
  const std::uint32_t mantissa = in_software::bits_of(x) & 0x7fffffu;
  if (!std::isfinite(nearest) || mantissa == 0 || mantissa == 0x7fffffu) return nearest;
  return std::nextafter(nearest, mantissa % 3 == 0 ? 0.0f : mantissa % 3 == 1 ? nearest : 2.0f * nearest);
}
inline float power_of_two_estimate(float x) { return std::exp2(x); }
inline float larger_or_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b); }
inline float smaller_or_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b); }
inline float larger_magnitude(float a, float b) { return larger_or_nan(std::fabs(a), std::fabs(b)); }
inline float bounded_or_nan(float value, float limit) { return larger_or_nan(smaller_or_nan(value, limit), -limit); }
inline float at_least_in_magnitude(float value, float least) {
  return std::copysign(std::fmax(std::fabs(value), least), value);
}
inline std::uint32_t choose_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return (a & mask) | (b & ~mask);
}
inline float float_of_f16(std::uint16_t f16) { return in_software::float_of(float_bits_of_f16(f16)); }

inline std::uint32_t four_e4m3(float a, float b, float c, float d) {
  return in_software::four(in_software::to_e4m3(a), in_software::to_e4m3(b), in_software::to_e4m3(c),
                           in_software::to_e4m3(d));
}
inline std::uint32_t one_e4m3(float a) { return in_software::to_e4m3(a); }
inline std::uint32_t four_e5m2(float a, float b, float c, float d) {
  return in_software::four(in_software::to_e5m2(a), in_software::to_e5m2(b), in_software::to_e5m2(c),
                           in_software::to_e5m2(d));
}
inline float float_of_e4m3(std::uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 15u);
  const auto mantissa = static_cast<float>(code & 7u);
  const float magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0f + mantissa / 8.0f, exponent - 7);
  if ((code & 0x7fu) == 0x7fu) return NAN;
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}
inline void floats_of_four_e4m3(std::uint32_t codes, float* values) {
  for (int i = 0; i < 4; ++i) values[i] = float_of_e4m3(codes >> 8 * i & 0xffu);
}
// For devices with kHasSmallFloats.
inline std::uint32_t four_e2m3(float, float, float, float) { return 0; }
inline std::uint32_t four_e3m2(float, float, float, float) { return 0; }
inline std::uint32_t eight_e2m1(const float (&)[8]) { return 0; }

}  // namespace ferry::ptx
