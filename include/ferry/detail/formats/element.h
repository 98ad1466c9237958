// The small floating-point elements of the block formats: E4M3, E2M1, E2M3, E3M2.
// There are no branches, so that a compiler can vectorise.
#pragma once

#include "ferry/detail/formats/rounded.h"

namespace ferry::codec {

// Sign, kExponent bits, kMantissa bits, with subnormals and without infinities. kMaxCode is the largest finite
// magnitude; where kHasNan is set, the magnitude above it is NaN.
template <int kExponent, int kMantissa, std::uint32_t kMaxCode, bool kHasNan>
struct SmallFloat {
  static constexpr int kBits = 1 + kExponent + kMantissa;
  static constexpr int kMantissaBits = kMantissa;
  static constexpr bool kHasNanCode = kHasNan;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr std::uint32_t kSignBit = 1u << (kBits - 1);

  // `code` without its sign, finite.
  FERRY_HD static constexpr float magnitude_value(std::uint32_t code) {
    const std::uint32_t exponent = larger(code >> kMantissa, 1u);
    const std::uint32_t steps = code - ((exponent - 1u) << kMantissa);
    const float step = float_of((exponent + static_cast<std::uint32_t>(127 - kBias - kMantissa)) << 23);
    return static_cast<float>(static_cast<std::int32_t>(steps)) * step;  // exact: at most kMantissa + 1 bits
  }

  FERRY_HD static constexpr float decode(std::uint32_t code) {
    const std::uint32_t magnitude = code & (kSignBit - 1u);
    const std::uint32_t sign = (code & kSignBit) << (32 - kBits);
    const std::uint32_t bits = bits_of(magnitude_value(magnitude)) | sign;
    if constexpr (kHasNan) return float_of(bits | (all_ones_if(magnitude > kMaxCode) & kNanBits));
    return float_of(bits);
  }

  // The code nearest to the float32 with these bits times multiplier >= 0, ties to even, at most the largest.
  FERRY_HD static std::uint32_t encode(std::uint32_t bits, float multiplier) {
    const std::uint32_t sign = (bits >> 31) << (kBits - 1);
    return encode_magnitude(multiply_rounded(float_of(bits & kMagnitudeMask), multiplier)) | sign;
  }

  // `anchor` is a power of two whose last bit is one step of the element's grid at this magnitude. Adding it makes the
  // float32 addition do the rounding: the sum's bits exceed the anchor's bits by the number of steps.
  FERRY_HD static std::uint32_t encode_magnitude(float value) {
    const std::uint32_t clamped = smaller(bits_of(value), kMaxBits);
    const std::uint32_t exponent = larger(clamped & kInfinityBits, kMinNormalBits);
    const std::uint32_t anchor = exponent + (static_cast<std::uint32_t>(23 - kMantissa) << 23);
    const std::uint32_t steps = bits_of(add_rounded(float_of(clamped), float_of(anchor))) - anchor;
    return steps + ((exponent - kMinNormalBits) >> (23 - kMantissa));
  }

  static constexpr std::uint32_t kMinNormalBits = static_cast<std::uint32_t>(128 - kBias) << 23;
  // The bits of magnitude_value(kMaxCode), the largest value. A class cannot call its own functions in such a constant.
  static constexpr std::uint32_t kMaxBits = kMinNormalBits + ((kMaxCode - (1u << kMantissa)) << (23 - kMantissa));
};

using E4m3 = SmallFloat<4, 3, 0x7e, true>;
using E2m1 = SmallFloat<2, 1, 0x7, false>;
using E2m3 = SmallFloat<2, 3, 0x1f, false>;
using E3m2 = SmallFloat<3, 2, 0x1f, false>;
static_assert(float_of(E4m3::kMaxBits) == 448.0f && E4m3::magnitude_value(0x7e) == 448.0f);
static_assert(float_of(E2m1::kMaxBits) == 6.0f && E2m1::magnitude_value(0x7) == 6.0f);
static_assert(float_of(E2m3::kMaxBits) == 7.5f && E2m3::magnitude_value(0x1f) == 7.5f);
static_assert(float_of(E3m2::kMaxBits) == 28.0f && E3m2::magnitude_value(0x1f) == 28.0f);

}  // namespace ferry::codec
