// SwiGLU of one row, as a source of columns that any codec can encode (ferry/detail/formats/source.h). Host and device.
// Each float32 operation is rounded once, so every CPU gives the same bits. A GPU uses its own exponential and
// reciprocal, 4 instructions in place of 13, so its sigmoids differ from the CPU's by some units of the last place.
#pragma once

#include "ferry/detail/formats/source.h"

namespace ferry::activation {

using codec::add_rounded;
using codec::bits_of;
using codec::float_of;
using codec::fused_multiply_add;
using codec::multiply_rounded;

// Comparisons that a NaN fails: at_most and at_least keep it (some NaN).
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
inline constexpr float kLog2E = 1.44269504f;

#if defined(__CUDA_ARCH__)

// 1 / (1 + exp(-x)) within 2^-21 + |x| * 2^-23 of it, relative; 0 below -87.3, where it would not be a normal number.
__device__ inline float sigmoid(float x) {
  return ptx::reciprocal_estimate(add_rounded(1.0f, ptx::power_of_two_estimate(multiply_rounded(x, -kLog2E))));
}

#else

inline float limited(float value, float lower, float upper) {  // a NaN becomes the upper limit
  const float low = value < upper ? value : upper;
  return low > lower ? low : lower;
}

// 2^kPower * exp(-x); within 2^-22 + |x| * 2^-26 of it, relative. It must be a normal number.
template <int kPower>
inline float exp_minus(float x) {
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
  return float_of(bits_of(power) + (bits_of(shifted) << 23));
}

// 1 / (1 + exp(-x)); down to 0 for large negative x, and 1 for a NaN: the gate that it is multiplied with is one too,
// or alpha is 0 and the gate infinite.
inline float sigmoid(float x) {
  constexpr float kScale = 0x1p-64f;  // keeps exp and the reciprocal in range
  return multiply_rounded(1.0f / add_rounded(kScale, exp_minus<-64>(limited(x, -105.0f, 30.0f))), kScale);
}

#endif

FERRY_HD inline float silu_product(float gate, float up) {
  return multiply_rounded(multiply_rounded(gate, sigmoid(gate)), up);
}

FERRY_HD inline float clamped_product(float gate, float up, float alpha, float limit) {
  const float g = at_most(gate, limit);
  const float u = within(up, limit);
  return multiply_rounded(multiply_rounded(add_rounded(u, 1.0f), g), sigmoid(multiply_rounded(alpha, g)));
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

// 8 or 16 columns of a row at a time, for a thread of a GPU: fetched as they are, then activated.
template <class Input, bool kInterleaved, int kColumns>
struct SwigluColumns {
  using Stored = typename Input::Stored;
  static constexpr int kCount = kColumns;
  struct Pairs {
    codec::Fetched<Stored, kColumns> half[2];  // gates and ups, or the first and the last pairs
  };

  // The element of a row at which these columns start.
  FERRY_HD static constexpr int first_element(int column) { return kInterleaved ? 2 * column : column; }

  // `from` is that element of a row.
  FERRY_HD static void fetch(const Stored* from, int inter, Pairs& pairs) {
    codec::fetch_elements(from, kColumns, pairs.half[0]);
    codec::fetch_elements(from + (kInterleaved ? kColumns : inter), kColumns, pairs.half[1]);
  }

  template <bool kClamped>
  FERRY_HD static void activate(const Pairs& pairs, float alpha, float limit, std::uint32_t (&bits)[kColumns]) {
    for (int i = 0; i < kColumns; ++i) {
      const float gate = gate_of(pairs, i);
      const float up = up_of(pairs, i);
      bits[i] = bits_of(kClamped ? clamped_product(gate, up, alpha, limit) : silu_product(gate, up));
    }
  }

 private:
  FERRY_HD static float gate_of(const Pairs& pairs, int i) {
    return kInterleaved ? at(pairs.half[i / (kColumns / 2)], 2 * i % kColumns) : at(pairs.half[0], i);
  }
  FERRY_HD static float up_of(const Pairs& pairs, int i) {
    return kInterleaved ? at(pairs.half[i / (kColumns / 2)], 2 * i % kColumns + 1) : at(pairs.half[1], i);
  }
  FERRY_HD static float at(const codec::Fetched<Stored, kColumns>& half, int i) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(Stored) == 2) {
      const std::uint32_t pair = codec::pair_at(half, i / 2);
      return float_of(i % 2 == 0 ? Input::first_bits(pair) : Input::second_bits(pair));
    }
#endif
    return float_of(Input::number_bits(half.elements[i]));
  }
};

}  // namespace ferry::activation
