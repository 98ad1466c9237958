// Scale rules: how a block's scale, and the multiplier of its columns, follow from the block's largest magnitude.
// docs/formats.md has the rules in words.
//
// A rule offers: Stored, kNan (the scale of a block with a NaN or an infinity), choose(amax bits, input scale),
// decode(code value, stored scale, input scale), and with_decoder(stored scale, input scale, body), which calls
// body(decoder): decoder(code value) is the same number, and what it has in common for a block is computed once. amax
// is finite in choose. kFits: multipliers are powers of two that leave no column above the element's largest value.
// kTakesInputScale: the input scale is used.
#pragma once

#include "ferry/detail/formats/element.h"

namespace ferry::codec {

template <class StoredType>
struct BlockScale {
  StoredType stored;
  float multiplier;
  bool moderate = false;  // the multiplier is 0, or 2^-100 to 2^100
};

// Smallest power of two e with 448 * 2^e >= amax, as byte e + 127: a mantissa above 1.75 carries into the exponent.
FERRY_HD constexpr std::uint32_t e8m0_ceil(std::uint32_t amax) {
  const std::uint32_t field = (amax + 0x1fffffu) >> 23;
  return larger(field, 8u) - 8u;
}

// amax rounded to kMantissa bits, half up, and its exponent lowered by that of the largest element.
template <int kMantissa, int kMaxExponent>
FERRY_HD constexpr std::uint32_t e8m0_even(std::uint32_t amax) {
  constexpr auto kLowest = static_cast<std::uint32_t>(kMaxExponent);
  const std::uint32_t field = (amax + (1u << (22 - kMantissa))) >> 23;
  return larger(field, kLowest) - kLowest;
}

inline constexpr std::uint32_t kSmallestAmax = __builtin_bit_cast(std::uint32_t, 1e-4f);  // of fp8_block128

// A decoder whose scale is a factor.
struct ByProduct {
  float scale;
  FERRY_HD float operator()(float code) const { return multiply_rounded(code, scale); }
};

struct FloatScale {
  using Stored = std::uint32_t;  // float32 bits
  static constexpr Stored kNan = kNanBits;
  static constexpr bool kFits = false;
  static constexpr bool kTakesInputScale = false;
  FERRY_HD static BlockScale<Stored> choose(std::uint32_t amax_bits, float) {
    const float amax = float_of(larger(amax_bits, kSmallestAmax));
    // Numerator and denominator have the same power of two as a factor, so that the reciprocal is a normal number.
    constexpr float kPower = 0x1p-32f;
    const float low = multiply_rounded(amax, kPower);
    return {bits_of(quotient_rounded(amax, 448.0f, 1.0f / 448.0f)),
            quotient_rounded(448.0f * kPower, low, reciprocal_rounded(low))};
  }
  FERRY_HD static float decode(float code, Stored stored, float) { return multiply_rounded(code, float_of(stored)); }
  template <class Body>
  FERRY_HD static void with_decoder(Stored stored, float, const Body& body) {
    body(ByProduct{float_of(stored)});
  }
};

template <std::uint32_t kAmaxFloor>
struct CeilScale {
  using Stored = std::uint8_t;
  static constexpr Stored kNan = 255;
  static constexpr bool kFits = true;
  static constexpr bool kTakesInputScale = false;
  FERRY_HD static constexpr BlockScale<Stored> choose(std::uint32_t amax_bits, float) {
    const std::uint32_t byte = e8m0_ceil(larger(amax_bits, kAmaxFloor));
    return {static_cast<Stored>(byte), e8m0_inverse(byte)};
  }
  FERRY_HD static float decode(float code, Stored stored, float) { return multiply_rounded(code, e8m0_value(stored)); }
  template <class Body>
  FERRY_HD static void with_decoder(Stored stored, float, const Body& body) {
    body(ByProduct{e8m0_value(stored)});
  }
};

template <int kMantissa, int kMaxExponent>
struct EvenScale {
  using Stored = std::uint8_t;
  static constexpr Stored kNan = 255;
  static constexpr bool kFits = true;  // an amax that would round above the largest value rounds up to the next power
  static constexpr bool kTakesInputScale = false;
  FERRY_HD static constexpr BlockScale<Stored> choose(std::uint32_t amax_bits, float) {
    const std::uint32_t byte = e8m0_even<kMantissa, kMaxExponent>(amax_bits);
    return {static_cast<Stored>(byte), e8m0_inverse(byte)};
  }
  FERRY_HD static float decode(float code, Stored stored, float) { return multiply_rounded(code, e8m0_value(stored)); }
  template <class Body>
  FERRY_HD static void with_decoder(Stored stored, float, const Body& body) {
    body(ByProduct{e8m0_value(stored)});
  }
};

// NVFP4: an E4M3 scale beside one float32 scale for the whole tensor.
struct TwoLevelScale {
  using Stored = std::uint8_t;
  static constexpr Stored kNan = 0x7f;
  static constexpr bool kFits = false;  // an E4M3 scale at its limit, or a few steps above zero, is far from amax / 6
  static constexpr bool kTakesInputScale = true;
  FERRY_HD static BlockScale<Stored> choose(std::uint32_t amax_bits, float input_scale) {
    // Larger values would be limited to the same code. Values too small for quotient_rounded give code 0.
    const float scaled = float_of(smaller(bits_of(multiply_rounded(input_scale, float_of(amax_bits))), kLarge));
    const std::uint32_t code = e4m3_code(quotient_rounded(scaled, 6.0f, 1.0f / 6.0f));
    const float sf = e4m3_value(larger(code, 1u));
    const bool moderate = is_moderate(input_scale);
    const float inverse =
        moderate ? quotient_rounded(input_scale, sf, reciprocal_rounded(sf)) : divide_rounded(input_scale, sf);
    return {static_cast<Stored>(code), code == 0 ? 0.0f : inverse, moderate};
  }
  FERRY_HD static float decode(float code, Stored stored, float input_scale) {
    return divide_rounded(multiply_rounded(code, E4m3::decode(stored)), input_scale);
  }
  // A moderate input scale, prepared for all blocks of a row: times 2^-9, and the reciprocal of that.
  struct Divisor {
    float low;
    float reciprocal;
  };
  static constexpr float kLow = 0x1p-9f;
  FERRY_HD static Divisor divisor_of(float moderate_input_scale) {
    const float low = multiply_rounded(moderate_input_scale, kLow);
    return {low, reciprocal_rounded(low)};
  }
  // The factor of a block for code values that are 2^-126 of theirs (low_value_of_top), and what such a product is
  // decoded to. The products are exact, and both numbers of the quotient are 2^-9 of what decode() divides. A zero may
  // lose its sign.
  FERRY_HD static float low_factor(Stored stored) { return multiply_rounded(stored_value(stored), 0x1p126f * kLow); }
  FERRY_HD static float divide(float low_product, const Divisor& by) {
    return quotient_rounded(low_product, by.low, by.reciprocal);
  }
  template <class Body>
  FERRY_HD static void with_decoder(Stored stored, float input_scale, const Body& body) {
    const float scale = stored_value(stored);
    if (is_moderate(input_scale))
      body(ByQuotient{scale, input_scale, reciprocal_rounded(input_scale)});
    else
      body(ByDivision{scale, input_scale});
  }

 private:
  // The product of a code and a scale is 0, or 2^-10 to 2^12. quotient_rounded loses the sign of a zero.
  struct ByQuotient {
    float scale, input_scale, reciprocal;
    FERRY_HD float operator()(float code) const {
      const float product = multiply_rounded(code, scale);
      const std::uint32_t magnitude = bits_of(quotient_rounded(product, input_scale, reciprocal)) & kMagnitudeMask;
      return float_of(magnitude | (bits_of(product) & ~kMagnitudeMask));
    }
  };
  struct ByDivision {
    float scale, input_scale;
    FERRY_HD float operator()(float code) const { return divide_rounded(multiply_rounded(code, scale), input_scale); }
  };
  FERRY_HD static float stored_value(std::uint32_t code) {
#if defined(__CUDA_ARCH__)
    if constexpr (ptx::kHasByteFloats) return ptx::float_of_e4m3(code);
#endif
    return E4m3::decode(code);
  }
  static constexpr std::uint32_t kLarge = bits_of(0x1p20f);
  FERRY_HD static std::uint32_t e4m3_code(float magnitude) {
#if defined(__CUDA_ARCH__)
    if constexpr (ptx::kHasByteFloats) return ptx::one_e4m3(magnitude);
#endif
    return E4m3::encode_magnitude(magnitude);
  }
  FERRY_HD static float e4m3_value(std::uint32_t code) {
#if defined(__CUDA_ARCH__)
    if constexpr (ptx::kHasByteFloats) return ptx::float_of_e4m3(code);
#endif
    return E4m3::magnitude_value(code);
  }
};

}  // namespace ferry::codec
