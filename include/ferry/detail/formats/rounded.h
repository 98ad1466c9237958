// Single float32 operations, each rounded once to nearest even, and the bits of a float32. Codecs use nothing else, so
// that they give the same bytes everywhere. Host code relies on -ffp-contract=off; device code names the instruction.
#pragma once

#include <cstdint>

#include "ferry/formats/portable.h"
#if defined(__CUDACC__)
#include "ferry/detail/formats/ptx_numbers.cuh"
#endif

namespace ferry::codec {

inline constexpr std::uint32_t kMagnitudeMask = 0x7fffffffu;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
inline constexpr std::uint32_t kNanBits = 0x7fc00000u;

FERRY_HD constexpr std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
FERRY_HD constexpr float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

FERRY_HD constexpr std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }
FERRY_HD constexpr std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

// A mask replaces a choice between float32 results: a compiler makes a branch of such a choice, and then no vector
// code.
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

// a * b + c, rounded once. No compiler fuses elsewhere, so the same operations are fused on every processor.
FERRY_HD inline float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// 1 / x, rounded once, for x from 2^-100 to 2^100. The bits are those of divide_rounded, which handles all x.
FERRY_HD inline float reciprocal_rounded(float x) {
#if defined(__CUDA_ARCH__)
  const float estimate = ptx::reciprocal_estimate(x);
  return __fmaf_rn(__fmaf_rn(-x, estimate, 1.0f), estimate, estimate);
#else
  return 1.0f / x;
#endif
}

// a / b, rounded once, where `reciprocal` is 1 / b rounded, and a, b and the quotient are far from the ends of the
// range: the same bits as divide_rounded.
FERRY_HD inline float quotient_rounded(float a, float b, [[maybe_unused]] float reciprocal) {
#if defined(__CUDA_ARCH__)
  const float estimate = __fmul_rn(a, reciprocal);
  return __fmaf_rn(__fmaf_rn(-b, estimate, a), reciprocal, estimate);
#else
  return a / b;
#endif
}

// Whether the number is between 2^-80 and 2^80: then quotient_rounded may divide it by 2^-20 to 2^20.
FERRY_HD constexpr bool is_moderate(float positive) { return (bits_of(positive) >> 23) - 47u < 160u; }

// 1 / x, rounded once, for any x > 0.
FERRY_HD inline float inverse_rounded(float x) {
  return is_moderate(x) ? reciprocal_rounded(x) : divide_rounded(1.0f, x);
}

// The larger magnitude of two float32 given as bits; above kInfinityBits where one is a NaN.
FERRY_HD inline std::uint32_t larger_magnitude(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return bits_of(ptx::larger_magnitude(float_of(a), float_of(b)));
#else
  return larger(a & kMagnitudeMask, b & kMagnitudeMask);
#endif
}

// Replaces every NaN by the one that GPUs make, 0x7FFF as bf16: processors make different ones.
FERRY_HD constexpr std::uint32_t with_one_nan(std::uint32_t bits) {
  const std::uint32_t is_nan = all_ones_if((bits & kMagnitudeMask) > kInfinityBits);
  return (bits & ~is_nan) | (kMagnitudeMask & is_nan);
}

// 2^(byte - 127); byte 0 is the subnormal 2^-127 and 255 is NaN.
FERRY_HD constexpr float e8m0_value(std::uint32_t byte) {
  const std::uint32_t bits = byte == 0 ? 0x00400000u : byte << 23;
  return float_of(byte == 255 ? kNanBits : bits);
}

// 2^(127 - byte) for bytes 0 to 253; the rules of scale_rule.h give no higher one.
FERRY_HD constexpr float e8m0_inverse(std::uint32_t byte) { return float_of((254 - byte) << 23); }

// Nearest bf16, ties to even; a NaN stays a NaN.
FERRY_HD constexpr std::uint32_t bf16_of(std::uint32_t bits) {
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & kMagnitudeMask) > kInfinityBits ? (bits >> 16) | 0x40u : rounded;
}

// float32 bits to float16 bits. A NaN stays one.
FERRY_HD constexpr std::uint16_t f16_of(std::uint32_t bits) {
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  constexpr std::uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  constexpr std::uint32_t kTooLarge = 0x477ff000u;        // 65520, which rounds to infinity
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= kTooLarge) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < kSmallestNormal)  // next to 0.5 a float32 has the steps of a float16 next to zero
    return static_cast<std::uint16_t>(sign | (bits_of(add_rounded(float_of(magnitude), 0.5f)) - bits_of(0.5f)));
  const std::uint32_t nearest = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | ((nearest - 0x38000000u) >> 13));
}

}  // namespace ferry::codec
