// The arithmetic and conversion instructions that codecs and activations name on a GPU. A constant says which
// instructions a device has, so code for an older device takes the portable way.
#pragma once

#include <cstdint>

namespace ferry::ptx {

// Two bf16, the first in the low half. Every NaN becomes 0x7FFF.
__device__ inline std::uint32_t two_bf16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
// Two float16, the first in the low half. Every NaN becomes 0x7FFF.
__device__ inline std::uint32_t two_f16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

#if defined(__CUDA_ARCH__)

// float32 pairs to 8-bit floats: Ada, Hopper and later.
inline constexpr bool kHasByteFloats = __CUDA_ARCH__ >= 890;
// float32 pairs to 6-bit and 4-bit floats: builds for one family of Blackwell devices (100a, 100f and so on) only.
#if (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000) || \
    (defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ >= 1000)
#define FERRY_PTX_SMALL_FLOATS 1
#else
#define FERRY_PTX_SMALL_FLOATS 0
#endif
inline constexpr bool kHasSmallFloats = FERRY_PTX_SMALL_FLOATS == 1;

// 1 / x within a few units of the last place. 0 where 1 / x is smaller than a normal number, as for an infinite x.
__device__ inline float reciprocal_estimate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 2^x with a relative error of at most 2^-22 where 2^x is a normal number; 0 or infinity beyond.
__device__ inline float power_of_two_estimate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger of |a| and |b|; a NaN where one is a NaN.
__device__ inline float larger_magnitude(float a, float b) {
  float y;
  asm("{.reg .f32 x, y; abs.f32 x, %1; abs.f32 y, %2; max.NaN.f32 %0, x, y;}" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// A NaN where one is a NaN.
__device__ inline float larger_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float smaller_or_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// `value` limited to the range from -limit to limit; a NaN where value is a NaN.
__device__ inline float bounded_or_nan(float value, float limit) {
#if __CUDA_ARCH__ >= 860
  float y;
  asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(y) : "f"(value), "f"(limit));
  return y;
#else
  return larger_or_nan(smaller_or_nan(value, limit), -limit);
#endif
}

// The larger of the two magnitudes, with value's sign; `least` is positive.
__device__ inline float at_least_in_magnitude(float value, float least) {
  float y;
#if __CUDA_ARCH__ >= 860
  asm("max.xorsign.abs.f32 %0, %1, %2;" : "=f"(y) : "f"(value), "f"(least));
#else
  asm("{.reg .f32 x; abs.f32 x, %1; max.f32 x, x, %2; copysign.f32 %0, %1, x;}" : "=f"(y) : "f"(value), "f"(least));
#endif
  return y;
}

// The bits of `a` where `mask` has ones, those of `b` elsewhere.
__device__ inline std::uint32_t choose_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  std::uint32_t y;
  asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(y) : "r"(a), "r"(b), "r"(mask));
  return y;
}

__device__ inline float float_of_f16(std::uint16_t f16) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(f16));
  return y;
}

// Four codes, the first in the low byte; to nearest even, at most the largest finite value. Devices with
// kHasByteFloats.
__device__ inline std::uint32_t four_e4m3(float a, float b, float c, float d) {
  std::uint32_t codes = 0;
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, %2, %1; cvt.rn.satfinite.e4m3x2.f32 h, %4, %3;"
      " mov.b32 %0, {l, h};}"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
#endif
  return codes;
}
__device__ inline std::uint32_t one_e4m3(float a) {
  std::uint32_t code = 0;
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 c; cvt.rn.satfinite.e4m3x2.f32 c, 0f00000000, %1; cvt.u32.u16 %0, c;}" : "=r"(code) : "f"(a));
#endif
  return code;
}
__device__ inline std::uint32_t four_e5m2(float a, float b, float c, float d) {
  std::uint32_t codes = 0;
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 l, h; cvt.rn.satfinite.e5m2x2.f32 l, %2, %1; cvt.rn.satfinite.e5m2x2.f32 h, %4, %3;"
      " mov.b32 %0, {l, h};}"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
#endif
  return codes;
}
__device__ inline float float_of_e4m3(std::uint32_t code) {
  float y = 0.0f;
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 c, l, h; .reg .b32 p; cvt.u16.u32 c, %1; cvt.rn.f16x2.e4m3x2 p, c; mov.b32 {l, h}, p;"
      " cvt.f32.f16 %0, l;}"
      : "=f"(y)
      : "r"(code));
#endif
  return y;
}
// The values of four codes, the first in the low byte.
__device__ inline void floats_of_four_e4m3(std::uint32_t codes, float* values) {
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 c, d, e, f; .reg .b32 l, h; mov.b32 {c, d}, %4; cvt.rn.f16x2.e4m3x2 l, c; cvt.rn.f16x2.e4m3x2 h, d;"
      " mov.b32 {c, d}, l; mov.b32 {e, f}, h; cvt.f32.f16 %0, c; cvt.f32.f16 %1, d; cvt.f32.f16 %2, e;"
      " cvt.f32.f16 %3, f;}"
      : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
      : "r"(codes));
#endif
}

// Devices with kHasSmallFloats. 6-bit codes in the low bits of a byte each; eight 4-bit codes, the first in the low
// bits.
__device__ inline std::uint32_t four_e2m3(float a, float b, float c, float d) {
  std::uint32_t codes = 0;
#if FERRY_PTX_SMALL_FLOATS
  asm("{.reg .b16 l, h; cvt.rn.satfinite.e2m3x2.f32 l, %2, %1; cvt.rn.satfinite.e2m3x2.f32 h, %4, %3;"
      " mov.b32 %0, {l, h};}"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
#endif
  return codes;
}
__device__ inline std::uint32_t four_e3m2(float a, float b, float c, float d) {
  std::uint32_t codes = 0;
#if FERRY_PTX_SMALL_FLOATS
  asm("{.reg .b16 l, h; cvt.rn.satfinite.e3m2x2.f32 l, %2, %1; cvt.rn.satfinite.e3m2x2.f32 h, %4, %3;"
      " mov.b32 %0, {l, h};}"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
#endif
  return codes;
}
__device__ inline std::uint32_t eight_e2m1(const float (&v)[8]) {
  std::uint32_t codes = 0;
#if FERRY_PTX_SMALL_FLOATS
  asm("{.reg .b8 a, b, c, d; cvt.rn.satfinite.e2m1x2.f32 a, %2, %1; cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;"
      " cvt.rn.satfinite.e2m1x2.f32 c, %6, %5; cvt.rn.satfinite.e2m1x2.f32 d, %8, %7; mov.b32 %0, {a, b, c, d};}"
      : "=r"(codes)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
#endif
  return codes;
}

#undef FERRY_PTX_SMALL_FLOATS
#endif  // __CUDA_ARCH__

}  // namespace ferry::ptx
