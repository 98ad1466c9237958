// The oracle's own bf16 and float16.
#include <cmath>
#include <cstring>

#include "conformance/oracle/oracle.h"

namespace ferry::test {

std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // the payload may be below
  const std::uint32_t half = 0x7fffu + ((bits >> 16) & 1u);                      // ties to even
  return static_cast<std::uint16_t>((bits + half) >> 16);
}

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// nearbyint rounds ties to even. A significand that rounds up to 2048 carries into the exponent.
std::uint16_t to_f16(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(double{value});
  if (std::isnan(magnitude)) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < 0x1p-14)
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(std::nearbyint(magnitude * 0x1p24)));
  int exponent = 0;
  const auto significand = static_cast<int>(std::nearbyint(std::frexp(magnitude, &exponent) * 0x1p11));
  return static_cast<std::uint16_t>(sign | ((exponent + 14) * 1024 + significand - 1024));
}

float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 0 ? fraction * 0x1p-24 : std::ldexp(1024.0 + fraction, exponent - 25);
  if (exponent == 31) magnitude = fraction == 0 ? HUGE_VAL : std::nan("");
  return static_cast<float>(std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0 : 1.0));
}

}  // namespace ferry::test
