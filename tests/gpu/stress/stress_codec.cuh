// What a row of a format must hold, from the definition in docs/formats.md, with the hardware's conversions.
#pragma once

#include <cuda_fp8.h>

#include "gpu/stress/stress_values.cuh"

namespace ferry::stress {

__device__ inline unsigned e4m3_of(float value) { return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3); }

__device__ inline float largest_in_warp(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  return value;
}

struct Found {
  Wrong wrong = Wrong::none;
  int column = -1;
  unsigned expected = 0, got = 0;
  __device__ void compare(Wrong what, int where, unsigned wanted, unsigned is) {
    if (wanted == is || wrong != Wrong::none) return;
    wrong = what;
    column = where;
    expected = wanted;
    got = is;
  }
};

// One block of 128 columns (fp8_block128) by a warp: the scale of the block, and four codes a lane.
__device__ inline void check_fp8_block(const Setting& s, unsigned key, int block, const std::uint8_t* payload,
                                       const std::uint8_t* scales, long long row, int lane, Found& found) {
  float values[4], amax = 0;
  for (int i = 0; i < 4; ++i) {
    const int column = block * 128 + i * 32 + lane;
    values[i] = column < s.hidden ? float_of_bf16(value_at(key, static_cast<unsigned>(column))) : 0.0f;
    amax = fmaxf(amax, fabsf(values[i]));
  }
  amax = fmaxf(largest_in_warp(amax), 1e-4f);
  const float scale = __fdiv_rn(amax, 448.0f), factor = __fdiv_rn(448.0f, amax);
  if (lane == 0)
    found.compare(Wrong::scale, block, __float_as_uint(scale),
                  reinterpret_cast<const unsigned*>(scales)[block * s.capacity + row]);
  for (int i = 0; i < 4; ++i) {
    const int column = block * 128 + i * 32 + lane;
    if (column < s.hidden)
      found.compare(Wrong::payload, column, e4m3_of(__fmul_rn(values[i], factor)), payload[column]);
  }
}

// One block of 32 columns (mxfp8) by a warp: the smallest power of two with 448 times it no less than the largest.
__device__ inline void check_mx_block(const Setting& s, unsigned key, int block, const std::uint8_t* payload,
                                      const std::uint8_t* scales, long long row, int lane, Found& found) {
  const int column = block * 32 + lane;
  const float value = float_of_bf16(value_at(key, static_cast<unsigned>(column)));
  const float amax = largest_in_warp(fabsf(value));
  int exponent = -127;
  if (amax > 0) {  // amax = m * 2^e with m from 1/2 to 1; 448 = 7/8 * 2^9
    const float m = frexpf(amax, &exponent);
    exponent += m > 0.875f ? -8 : -9;
  }
  if (lane == 0)
    found.compare(Wrong::scale, block, static_cast<unsigned>(exponent + 127), scales[row * (s.hidden / 32) + block]);
  found.compare(Wrong::payload, column, e4m3_of(ldexpf(value, -exponent)), payload[column]);
}

// The whole row, by the warps of a block.
__device__ inline void check_row_bytes(const Setting& s, unsigned key, const Rows& rows, long long row, Found& found) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  if (s.format == Format::bf16) {
    const auto* payload = reinterpret_cast<const std::uint16_t*>(rows.payload) + row * s.hidden;
    for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += static_cast<int>(blockDim.x))
      found.compare(Wrong::payload, column, value_at(key, static_cast<unsigned>(column)), payload[column]);
    return;
  }
  const std::uint8_t* payload = rows.payload + row * s.hidden;
  const int width = s.format == Format::fp8_block128 ? 128 : 32;
  for (int block = warp; block < (s.hidden + width - 1) / width; block += warps) {
    if (s.format == Format::fp8_block128)
      check_fp8_block(s, key, block, payload, rows.scales, row, lane, found);
    else
      check_mx_block(s, key, block, payload, rows.scales, row, lane, found);
  }
}

}  // namespace ferry::stress
