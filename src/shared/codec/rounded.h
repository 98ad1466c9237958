// One float32 operation, rounded once to nearest even, and the bits of a float32: what every codec is made of.
// Host code relies on -ffp-contract=off; device code names the uncontracted instruction.
#pragma once

#include <cstdint>

#include "ferry/portable.h"

namespace ferry::codec {

inline constexpr std::uint32_t kMagnitudeMask = 0x7fffffffu;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
inline constexpr std::uint32_t kNanBits = 0x7fc00000u;

FERRY_HD constexpr std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
FERRY_HD constexpr float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

FERRY_HD constexpr std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }
FERRY_HD constexpr std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

// A mask in place of a choice: a choice between float32 results becomes a branch, which keeps loops from vectorising.
FERRY_HD constexpr std::uint32_t all_ones_if(bool condition) { return 0u - static_cast<std::uint32_t>(condition); }

FERRY_HD inline float add_rounded(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

FERRY_HD inline float multiply_rounded(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

FERRY_HD inline float divide_rounded(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// 2^(byte - 127); byte 0 is the subnormal 2^-127 and 255 is NaN.
FERRY_HD constexpr float e8m0_value(std::uint32_t byte) {
  const std::uint32_t bits = byte == 0 ? 0x00400000u : byte << 23;
  return float_of(byte == 255 ? kNanBits : bits);
}

// 2^(127 - byte) for byte 0 .. 253, which is as high as the rules of scale_rule.h go.
FERRY_HD constexpr float e8m0_inverse(std::uint32_t byte) { return float_of((254 - byte) << 23); }

// Nearest bf16, ties to even; a NaN stays a NaN.
FERRY_HD constexpr std::uint32_t bf16_of(std::uint32_t bits) {
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & kMagnitudeMask) > kInfinityBits ? (bits >> 16) | 0x40u : rounded;
}

}  // namespace ferry::codec
