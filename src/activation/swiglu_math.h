// SwiGLU of one row, as a source of columns that any codec can encode (shared/codec/source.h). Host and device.
// Only float32 operations that are rounded once, so that every processor gives the same bits.
#pragma once

#include "shared/codec/source.h"

namespace ferry::activation {

using codec::add_rounded;
using codec::bits_of;
using codec::float_of;
using codec::fused_multiply_add;
using codec::multiply_rounded;

// Comparisons that a NaN fails: at_most and at_least keep it (some NaN), limited turns it into the upper limit.
FERRY_HD inline float at_most(float value, float limit) {
#if defined(__CUDA_ARCH__)
  return ptx::smaller_or_nan(value, limit);
#else
  return value > limit ? limit : value;
#endif
}
FERRY_HD inline float at_least(float value, float limit) {
#if defined(__CUDA_ARCH__)
  return ptx::larger_or_nan(value, limit);
#else
  return value < limit ? limit : value;
#endif
}
FERRY_HD inline float within(float value, float limit) {  // -limit to limit
#if defined(__CUDA_ARCH__)
  return ptx::bounded_or_nan(value, limit);
#else
  return at_least(at_most(value, limit), -limit);
#endif
}
FERRY_HD inline float limited(float value, float lower, float upper) {
#if defined(__CUDA_ARCH__)
  return fmaxf(fminf(value, upper), lower);
#else
  const float low = value < upper ? value : upper;
  return low > lower ? low : lower;
#endif
}

// Shifts to the left as factors. A GPU multiplies where it adds floats, and shifts where it has more to do already; it
// is not told the factors before it runs, or it would shift.
struct ShiftFactors {
  std::uint32_t one_exponent = 1u << 23;
  std::uint32_t half_word = 1u << 16;
};

// 2^kPower * exp(-x); within 2^-22 + |x| * 2^-26 of it, relative. It must be a normal number.
template <int kPower>
FERRY_HD inline float exp_minus(float x, std::uint32_t one_exponent) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kRounder = 12582912.0f + kPower;  // about 1.5 * 2^23: adding it rounds to a whole number
  const float shifted = fused_multiply_add(x, -kLog2E, kRounder);
  const float whole = add_rounded(shifted, -kRounder);
  const float fraction = fused_multiply_add(x, -kLog2E, -whole);  // -0.5 to 0.5

  // 2^fraction: the polynomial of degree 5 with the smallest relative error, 2^-23.4.
  float power = 0x1.5bba14p-10f;
  power = fused_multiply_add(power, fraction, 0x1.3cea88p-7f);
  power = fused_multiply_add(power, fraction, 0x1.c6b752p-5f);
  power = fused_multiply_add(power, fraction, 0x1.ebf9bcp-3f);
  power = fused_multiply_add(power, fraction, 0x1.62e42ap-1f);
  power = fused_multiply_add(power, fraction, 1.0f);
  // The low bits of `shifted` are the whole number and kPower: an exponent, once they are in its place.
  return float_of(bits_of(power) + bits_of(shifted) * one_exponent);
}

// Sigmoids of this magnitude or less need no care about the ends of the range: see sigmoid.
inline constexpr float kModerate = 64.0f;

// 1 / (1 + exp(-x)); down to 0 for large negative x, and 1 for a NaN: what it is multiplied with is a NaN too.
// kIsModerate: |x| is at most kModerate, or x is a NaN, for which the result is anything. The same bits with fewer
// operations: the scale of the other way only moves exponents, and at 30 or more both give 1.
template <bool kIsModerate = false>
FERRY_HD inline float sigmoid(float x, ShiftFactors by = {}) {
  if constexpr (kIsModerate) return codec::reciprocal_rounded(add_rounded(1.0f, exp_minus<0>(x, by.one_exponent)));
  constexpr float kScale = 0x1p-64f;  // keeps exp and the reciprocal in range
  return multiply_rounded(
      codec::reciprocal_rounded(add_rounded(kScale, exp_minus<-64>(limited(x, -105.0f, 30.0f), by.one_exponent))),
      kScale);
}

template <bool kIsModerate = false>
FERRY_HD inline float silu_product(float gate, float up, ShiftFactors by = {}) {
  return multiply_rounded(multiply_rounded(gate, sigmoid<kIsModerate>(gate, by)), up);
}

template <bool kIsModerate = false>
FERRY_HD inline float clamped_product(float gate, float up, float alpha, float limit, ShiftFactors by = {}) {
  const float g = at_most(gate, limit);
  const float u = within(up, limit);
  return multiply_rounded(multiply_rounded(add_rounded(u, 1.0f), g),
                          sigmoid<kIsModerate>(multiply_rounded(alpha, g), by));
}

// Gates of at most this magnitude make moderate sigmoids only. Finite: an infinite gate is never moderate.
inline float moderate_gate(bool clamped, float alpha) {
  constexpr float kLargest = 3.0e38f;
  if (!clamped) return kModerate;
  const float magnitude = alpha < 0 ? -alpha : alpha;
  return magnitude > kModerate / kLargest ? kModerate / magnitude : kLargest;
}

// The activated columns of a row of 2 * inter inputs. A NaN may be any NaN.
template <class Input, bool kInterleaved, bool kClamped>
struct SwigluSource {
  using Stored = typename Input::Stored;
  const Stored* row;
  int inter;
  float alpha;
  float limit;

  template <int kCount>
  FERRY_HD void load(int column, int count, std::uint32_t (&bits)[kCount]) const {
    if (count == kCount) {
      for (int i = 0; i < kCount; ++i) bits[i] = bits_of(at(column + i));
    } else {
      for (int i = 0; i < kCount; ++i) bits[i] = i < count ? bits_of(at(column + i)) : 0u;
    }
  }

 private:
  FERRY_HD float at(int column) const {
    const float gate = float_of(Input::float_bits(row[kInterleaved ? 2 * column : column]));
    const float up = float_of(Input::float_bits(row[kInterleaved ? 2 * column + 1 : inter + column]));
    return kClamped ? clamped_product(gate, up, alpha, limit) : silu_product(gate, up);
  }
};

// Sixteen columns of a row at a time, for a thread of a GPU: fetched as they are, then activated.
template <class Input, bool kInterleaved>
struct SwigluColumns {
  using Stored = typename Input::Stored;
  static constexpr int kColumns = 16;
  struct Pairs {
    codec::Fetched<Stored, kColumns> half[2];  // gates and ups, or the first and the last eight pairs
  };

  // Of a row, where these columns start.
  FERRY_HD static constexpr int first_element(int column) { return kInterleaved ? 2 * column : column; }

  // `from` is that element of a row.
  FERRY_HD static void fetch(const Stored* from, int inter, Pairs& pairs) {
    codec::fetch_elements(from, kColumns, pairs.half[0]);
    codec::fetch_elements(from + (kInterleaved ? kColumns : inter), kColumns, pairs.half[1]);
  }

  // The largest magnitude of the gates; one that is a NaN may count as 0 or make a NaN.
  FERRY_HD static float largest_gate(const Pairs& pairs) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(Stored) == 2) {
      std::uint32_t two = codec::pair_at(pairs.half[0], 0);
      for (int i = 1; i < (kInterleaved ? kColumns : kColumns / 2); ++i)
        two = Input::larger_magnitudes(two, codec::pair_at(pairs.half[i / (kColumns / 2)], i % (kColumns / 2)));
      two &= 0x7fff7fffu;
      const float first = float_of(Input::first_bits(two));
      return kInterleaved ? first : fmaxf(first, float_of(Input::second_bits(two)));
    } else {
      return largest_of(pairs);
    }
#else
    return largest_of(pairs);
#endif
  }

  // kIsModerate: largest_gate is at most moderate_gate.
  template <bool kClamped, bool kIsModerate>
  FERRY_HD static void activate(const Pairs& pairs, float alpha, float limit, std::uint32_t (&bits)[kColumns],
                                ShiftFactors by = {}) {
    for (int i = 0; i < kColumns; ++i) {
      const float gate = gate_of(pairs, i, by);
      const float up = up_of(pairs, i, by);
      bits[i] = bits_of(kClamped ? clamped_product<kIsModerate>(gate, up, alpha, limit, by)
                                 : silu_product<kIsModerate>(gate, up, by));
    }
  }

 private:
  FERRY_HD static float largest_of(const Pairs& pairs) {
    std::uint32_t largest = 0;
    for (int i = 0; i < kColumns; ++i) largest = codec::larger_magnitude(largest, bits_of(gate_of(pairs, i, {})));
    return float_of(largest);
  }
  FERRY_HD static float gate_of(const Pairs& pairs, int i, ShiftFactors by) {
    return kInterleaved ? at(pairs.half[i / (kColumns / 2)], 2 * i % kColumns, by) : at(pairs.half[0], i, by);
  }
  FERRY_HD static float up_of(const Pairs& pairs, int i, ShiftFactors by) {
    return kInterleaved ? at(pairs.half[i / (kColumns / 2)], 2 * i % kColumns + 1, by) : at(pairs.half[1], i, by);
  }
  FERRY_HD static float at(const codec::Fetched<Stored, kColumns>& half, int i, [[maybe_unused]] ShiftFactors by) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(Stored) == 2) {
      const std::uint32_t pair = codec::pair_at(half, i / 2);
      return float_of(i % 2 == 0 ? Input::first_bits(pair, by.half_word) : Input::second_bits(pair));
    }
#endif
    return float_of(Input::number_bits(half.elements[i]));
  }
};

}  // namespace ferry::activation
