// How a thread of a GPU encodes, 16 columns at a time, or 8, to packed codes, and how it decodes eight. The bytes and
// the values are those of Element::encode and Element::decode.
//
// Devices convert two columns of float32 to E4M3 or E5M2 with one instruction. The values of a 6-bit element are the
// low end of one of these two, so a power of two moves them there. E2M1 is rounded by an addition first, and then
// converts exactly. Other elements, and devices without the instructions, encode column by column.
#pragma once

#include "ferry/detail/formats/element.h"
#include "ferry/detail/formats/packing.h"

namespace ferry::codec {

// What converts: Element::encode, the instructions for 8-bit floats, or the element's own instruction.
enum class Conversion { by_column, by_byte_floats, by_element };

#if defined(__CUDA_ARCH__)
inline constexpr Conversion kBestConversion = ptx::kHasSmallFloats  ? Conversion::by_element
                                              : ptx::kHasByteFloats ? Conversion::by_byte_floats
                                                                    : Conversion::by_column;
#else
inline constexpr Conversion kBestConversion = Conversion::by_byte_floats;  // in software, for tests of the same text
#endif

// The most columns that one call takes, and the words that codes fill.
inline constexpr int kColumnsAtOnce = 16;
template <class Element, int kColumns = kColumnsAtOnce>
inline constexpr int kWordsAtOnce = kColumns* Element::kBits / 32;

using E5m2 = SmallFloat<5, 2, 0x7b, false>;
static_assert(float_of(E5m2::kMaxBits) == 57344.0f);

namespace detail {

template <class Element>
FERRY_HD inline std::uint32_t four_in_software(float a, float b, float c, float d) {
  return Element::encode(bits_of(a), 1.0f) | Element::encode(bits_of(b), 1.0f) << 8 |
         Element::encode(bits_of(c), 1.0f) << 16 | Element::encode(bits_of(d), 1.0f) << 24;
}
FERRY_HD inline std::uint32_t four_e4m3(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__)
  return ptx::four_e4m3(a, b, c, d);
#else
  return four_in_software<E4m3>(a, b, c, d);
#endif
}
FERRY_HD inline std::uint32_t four_e5m2(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__)
  return ptx::four_e5m2(a, b, c, d);
#else
  return four_in_software<E5m2>(a, b, c, d);
#endif
}
FERRY_HD inline std::uint32_t four_e2m3(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__)
  return ptx::four_e2m3(a, b, c, d);
#else
  return four_in_software<E2m3>(a, b, c, d);
#endif
}
FERRY_HD inline std::uint32_t four_e3m2(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__)
  return ptx::four_e3m2(a, b, c, d);
#else
  return four_in_software<E3m2>(a, b, c, d);
#endif
}
FERRY_HD inline std::uint32_t eight_e2m1(const float (&v)[8]) {
#if defined(__CUDA_ARCH__)
  return ptx::eight_e2m1(v);
#else
  std::uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= E2m1::encode(bits_of(v[i]), 1.0f) << (4 * i);
  return word;
#endif
}

// The bits of `a` where `mask` has ones, those of `b` elsewhere.
FERRY_HD inline std::uint32_t choose_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return ptx::choose_bits(mask, a, b);
#else
  return (a & mask) | (b & ~mask);
#endif
}

// Four bytes with a sign on top and a magnitude below 32 to four 6-bit codes in the low 24 bits; any bits above.
FERRY_HD inline std::uint32_t squeeze_six(std::uint32_t bytes) {
  const std::uint32_t six = choose_bits(0x1f1f1f1fu, bytes, bytes >> 2);
  const std::uint32_t twelve = choose_bits(0x003f003fu, six, six >> 2);
  return choose_bits(0x00000fffu, twelve, twelve >> 4);
}
// As squeeze_six, of four codes in a byte each.
FERRY_HD inline std::uint32_t squeeze_codes(std::uint32_t six) {
  const std::uint32_t twelve = choose_bits(0x003f003fu, six, six >> 2);
  return choose_bits(0x00000fffu, twelve, twelve >> 4);
}
// Four times 24 bits, with any bits above, as three words.
FERRY_HD inline void join_six(const std::uint32_t (&four)[4], std::uint32_t (&words)[3]) {
  words[0] = choose_bits(0x00ffffffu, four[0], four[1] << 24);
  words[1] = choose_bits(0x0000ffffu, four[1] >> 8, four[2] << 16);
  words[2] = choose_bits(0x000000ffu, four[2] >> 16, four[3] << 8);
}

// Eight E2M1 codes from E5M2 bytes of 2^-14 times their values, which end in the same bits: `even` has columns 0, 2, 4
// and 6, `odd` the others.
FERRY_HD inline std::uint32_t join_four(std::uint32_t even, std::uint32_t odd) {
  const std::uint32_t low = choose_bits(0x07070707u, even >> 1, even >> 4);
  const std::uint32_t high = choose_bits(0x7f7f7f7fu, odd << 3, odd);
  return choose_bits(0x0f0f0f0fu, low, high);
}

// The larger of the magnitudes of a number and of `least` > 0, with the number's sign.
FERRY_HD inline float at_least_in_magnitude(float value, float least) {
#if defined(__CUDA_ARCH__)
  return ptx::at_least_in_magnitude(value, least);
#else
  return __builtin_copysignf(float_of(larger(bits_of(value) & kMagnitudeMask, bits_of(least))), value);
#endif
}

// 2^-14 times the E2M1 value nearest to 2^14 * value, at most 7 * 2^-14 in magnitude, and 2^-20 times that or less
// beside it, so that a zero has a sign. A number less 2^22 times itself keeps one bit behind its leading one. Below
// E2M1's smallest normal, 1, all numbers keep a step of 0.5: the least that is taken away lies so far above 2^22 that
// they do not leave its binade.
FERRY_HD inline float round_to_e2m1(float value) {
  constexpr float kLeast = 0x1.000004p-14f;  // 1 + 2^-22, times 2^-14
  constexpr float kTimes = 4194304.0f;
  const float anchor = at_least_in_magnitude(value, kLeast);
  const float left = fused_multiply_add(anchor, -kTimes, value);
  return fused_multiply_add(anchor, 0x1p-20f, fused_multiply_add(anchor, kTimes, left));
}

// The bits of a value times multiplier >= 0, at most the element's largest in magnitude.
template <class Element>
FERRY_HD inline std::uint32_t cut_off(std::uint32_t bits, float multiplier) {
  const std::uint32_t magnitude = bits_of(multiply_rounded(float_of(bits & kMagnitudeMask), multiplier));
  return smaller(magnitude, Element::kMaxBits) | (bits & ~kMagnitudeMask);
}

template <int kColumns>
FERRY_HD inline void scaled(const std::uint32_t (&bits)[kColumns], float multiplier, float (&values)[kColumns]) {
  for (int i = 0; i < kColumns; ++i) values[i] = multiply_rounded(float_of(bits[i]), multiplier);
}

}  // namespace detail

// The codes of 16 columns times `multiplier` >= 0, or of 8 where they fill whole words. The instructions for E4M3 limit
// what is too large. Those for smaller elements need blocks that fit (fits, below).
template <class Element, Conversion kConversion>
struct Pack {
  static constexpr bool kByColumn = true;
  template <int kColumns>
  FERRY_HD static void run(const std::uint32_t (&bits)[kColumns], float multiplier,
                           std::uint32_t (&words)[kWordsAtOnce<Element, kColumns>]) {
    if constexpr (Element::kBits == 6) {
      std::uint32_t four[4] = {};
      for (int i = 0; i < 16; ++i) four[i / 4] |= Element::encode(bits[i], multiplier) << (6 * (i % 4));
      detail::join_six(four, words);
    } else {
      constexpr int kPerWord = 32 / Element::kBits;
      for (int w = 0; w < kWordsAtOnce<Element, kColumns>; ++w) {
        words[w] = 0;
        for (int i = 0; i < kPerWord; ++i)
          words[w] |= Element::encode(bits[w * kPerWord + i], multiplier) << (Element::kBits * i);
      }
    }
  }
};

template <>
struct Pack<E4m3, Conversion::by_byte_floats> {
  static constexpr bool kByColumn = false;
  template <int kColumns>
  FERRY_HD static void run(const std::uint32_t (&bits)[kColumns], float multiplier,
                           std::uint32_t (&words)[kColumns / 4]) {
    float v[kColumns];
    detail::scaled(bits, multiplier, v);
    for (int i = 0; i < kColumns / 4; ++i)
      words[i] = detail::four_e4m3(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
  }
};
template <>
struct Pack<E4m3, Conversion::by_element> : Pack<E4m3, Conversion::by_byte_floats> {};

template <class Element, Conversion kConversion>
requires(Element::kBits == 6 && kConversion != Conversion::by_column) struct Pack<Element, kConversion> {
  static constexpr bool kByColumn = false;
  FERRY_HD static void run(const std::uint32_t (&bits)[16], float multiplier, std::uint32_t (&words)[3]) {
    constexpr bool kE2m3 = Element::kBias == E2m3::kBias;
    constexpr bool kByElement = kConversion == Conversion::by_element;
    constexpr float kShift = kByElement ? 1.0f : kE2m3 ? 0x1p-6f : 0x1p-12f;  // to the low end of E4M3, of E5M2
    float v[16];
    detail::scaled(bits, multiply_rounded(multiplier, kShift), v);
    std::uint32_t four[4];
    for (int i = 0; i < 4; ++i) {
      const float* const a = v + 4 * i;
      if constexpr (kByElement && kE2m3)
        four[i] = detail::four_e2m3(a[0], a[1], a[2], a[3]);
      else if constexpr (kByElement)
        four[i] = detail::four_e3m2(a[0], a[1], a[2], a[3]);
      else if constexpr (kE2m3)
        four[i] = detail::four_e4m3(a[0], a[1], a[2], a[3]);
      else
        four[i] = detail::four_e5m2(a[0], a[1], a[2], a[3]);
      four[i] = kByElement ? detail::squeeze_codes(four[i]) : detail::squeeze_six(four[i]);
    }
    detail::join_six(four, words);
  }
};

template <>
struct Pack<E2m1, Conversion::by_byte_floats> {
  static constexpr bool kByColumn = false;
  template <int kColumns>
  FERRY_HD static void run(const std::uint32_t (&bits)[kColumns], float multiplier,
                           std::uint32_t (&words)[kColumns / 8]) {
    float v[kColumns];
    detail::scaled(bits, multiply_rounded(multiplier, 0x1p-14f), v);
    for (float& value : v) value = detail::round_to_e2m1(value);
    for (int i = 0; i < kColumns / 8; ++i) {
      const float* a = v + 8 * i;
      words[i] =
          detail::join_four(detail::four_e5m2(a[0], a[2], a[4], a[6]), detail::four_e5m2(a[1], a[3], a[5], a[7]));
    }
  }
};
template <>
struct Pack<E2m1, Conversion::by_element> {
  static constexpr bool kByColumn = false;
  template <int kColumns>
  FERRY_HD static void run(const std::uint32_t (&bits)[kColumns], float multiplier,
                           std::uint32_t (&words)[kColumns / 8]) {
    for (int i = 0; i < kColumns / 8; ++i) {
      float v[8];
      for (int j = 0; j < 8; ++j) v[j] = multiply_rounded(float_of(bits[8 * i + j]), multiplier);
      words[i] = detail::eight_e2m1(v);
    }
  }
};

// Magnitudes up to `amax` times multiplier round to at most the element's largest.
template <class Element>
FERRY_HD inline bool fits(std::uint32_t amax, float multiplier) {
  constexpr std::uint32_t kTooLarge = Element::kMaxBits + (1u << (22 - Element::kMantissaBits));
  return bits_of(multiply_rounded(float_of(amax), multiplier)) < kTooLarge;
}

// Pack with the fastest conversion that gives the bytes of Element::encode. kFits: the scale rule ensures that blocks
// fit. `moderate`: the multiplier stays exact when it is multiplied by a small power of two.
template <class Element, bool kFits, Conversion kConversion = kBestConversion, int kColumns>
FERRY_HD inline void pack_columns(const std::uint32_t (&bits)[kColumns], [[maybe_unused]] std::uint32_t amax,
                                  float multiplier, [[maybe_unused]] bool moderate,
                                  std::uint32_t (&words)[kWordsAtOnce<Element, kColumns>]) {
  using Best = Pack<Element, kConversion>;
  if constexpr (Best::kByColumn || kFits || Element::kBits == 8) {
    Best::run(bits, multiplier, words);
  } else {
    std::uint32_t fitting[kColumns];
    for (int i = 0; i < kColumns; ++i) fitting[i] = bits[i];
    if (!moderate || !fits<Element>(amax, multiplier)) {
      for (std::uint32_t& each : fitting) each = detail::cut_off<Element>(each, multiplier);
      multiplier = 1.0f;
    }
    Best::run(fitting, multiplier, words);
  }
}

// The value of a code, from the code's bits at the top of a word, times 2^(bias - 127). Sign and magnitude move to
// where float32 has them: the exponent is then off by a constant. A subnormal of the element is one of float32.
template <class Element>
FERRY_HD inline float low_value_of_top(std::uint32_t top) {
  static_assert(Element::kMantissaBits + Element::kBias < 127);
  constexpr int kExponentBits = Element::kBits - 1 - Element::kMantissaBits;
  constexpr int kDown = 8 - kExponentBits;
  constexpr std::uint32_t kMask = 0x80000000u | ((1u << (Element::kBits - 1)) - 1u) << (23 - Element::kMantissaBits);
  return float_of(static_cast<std::uint32_t>(static_cast<std::int32_t>(top) >> kDown) & kMask);
}
// The value itself: a product corrects the exponent, and makes float32's normal numbers of the element's subnormals.
template <class Element>
FERRY_HD inline float value_of_top(std::uint32_t top) {
  return multiply_rounded(low_value_of_top<Element>(top),
                          float_of(static_cast<std::uint32_t>(254 - Element::kBias) << 23));
}

// The values of eight codes, the first in the low bits of the first word.
template <class Element>
FERRY_HD inline void decode_eight(const std::uint32_t (&words)[kWordsOfEight<Element::kBits>], float (&values)[8]) {
#if defined(__CUDA_ARCH__)
  if constexpr (ptx::kHasByteFloats && Element::kBits == 8 && Element::kMantissaBits == 3) {
    ptx::floats_of_four_e4m3(words[0], values);
    ptx::floats_of_four_e4m3(words[1], values + 4);
    return;
  }
#endif
  std::uint32_t codes[8];
  eight_of_words<Element::kBits>(words, codes);
  for (int i = 0; i < 8; ++i)
    if constexpr (Element::kHasNanCode)
      values[i] = Element::decode(codes[i]);
    else
      values[i] = value_of_top<Element>(codes[i] << (32 - Element::kBits));
}

}  // namespace ferry::codec
