// SwiGLU of one row, as a source of columns that any codec can encode (shared/codec/source.h). Host and device.
// Only single rounded float32 operations, so that every processor gives the same bits.
#pragma once

#include "shared/codec/source.h"

namespace ferry::activation {

using codec::add_rounded;
using codec::all_ones_if;
using codec::bits_of;
using codec::divide_rounded;
using codec::float_of;
using codec::multiply_rounded;

// exp(-|x|), within 2 float32 ulps where the result is a normal number; 0 from |x| = 104 on. A NaN counts as 104:
// what it is multiplied with is a NaN too.
FERRY_HD inline float exp_minus_magnitude(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // few bits: a product with a whole number below 2^9 is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  constexpr float kLimit = 104.0f;
  const float y = -float_of(codec::smaller(bits_of(x) & codec::kMagnitudeMask, bits_of(kLimit)));

  const float shifted = add_rounded(multiply_rounded(y, kLog2E), kRounder);
  const float whole = add_rounded(shifted, -kRounder);
  float r = add_rounded(y, multiply_rounded(whole, -kLn2High));
  r = add_rounded(r, multiply_rounded(whole, -kLn2Low));

  float sum = 1.0f / 5040.0f;
  sum = add_rounded(multiply_rounded(sum, r), 1.0f / 720.0f);
  sum = add_rounded(multiply_rounded(sum, r), 1.0f / 120.0f);
  sum = add_rounded(multiply_rounded(sum, r), 1.0f / 24.0f);
  sum = add_rounded(multiply_rounded(sum, r), 1.0f / 6.0f);
  sum = add_rounded(multiply_rounded(sum, r), 0.5f);
  sum = add_rounded(multiply_rounded(sum, r), 1.0f);
  sum = add_rounded(multiply_rounded(sum, r), 1.0f);

  // 2^whole in two halves: whole goes down to -150, below the smallest normal exponent.
  const auto exponent = static_cast<std::int32_t>(bits_of(shifted) - bits_of(kRounder));
  const std::int32_t half = exponent >> 1;
  const float first = float_of(static_cast<std::uint32_t>(127 + half) << 23);
  const float second = float_of(static_cast<std::uint32_t>(127 + exponent - half) << 23);
  return multiply_rounded(multiply_rounded(sum, first), second);
}

// 1 / (1 + exp(-x)), in the form that does not overflow.
FERRY_HD inline float sigmoid(float x) {
  const float small = exp_minus_magnitude(x);
  const std::uint32_t negative = all_ones_if((bits_of(x) >> 31) != 0);
  const float top = float_of((bits_of(small) & negative) | (bits_of(1.0f) & ~negative));
  return divide_rounded(top, add_rounded(1.0f, small));
}

FERRY_HD inline float silu_product(float gate, float up) {
  return multiply_rounded(multiply_rounded(gate, sigmoid(gate)), up);
}

// Comparisons that a NaN fails, so that it stays.
FERRY_HD constexpr float at_most(float value, float limit) { return value > limit ? limit : value; }
FERRY_HD constexpr float at_least(float value, float limit) { return value < limit ? limit : value; }

FERRY_HD inline float clamped_product(float gate, float up, float alpha, float limit) {
  const float g = at_most(gate, limit);
  const float u = at_least(at_most(up, limit), -limit);
  return multiply_rounded(multiply_rounded(add_rounded(u, 1.0f), g), sigmoid(multiply_rounded(alpha, g)));
}

// The activated columns of a row of 2 * inter inputs.
template <class Input, bool kInterleaved, bool kClamped>
struct SwigluSource {
  const typename Input::Stored* row;
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

}  // namespace ferry::activation
