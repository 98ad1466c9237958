// What a row of a format must hold, and where its scales lie, from the definitions in docs/formats.md, with the
// conversions of CUDA's own headers.
#pragma once

#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include "gpu/stress/stress_values.cuh"

namespace ferry::stress {

__device__ inline unsigned e4m3_of(float value) { return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3); }
__device__ inline float float_of_e4m3(unsigned code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3)));
}
__device__ inline unsigned e2m1_of(float value) { return __nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest); }

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

__device__ inline int scales_of_row(const Setting& s) {
  const int width = scale_width(s.format);
  return width == 0 ? 0 : (s.hidden + width - 1) / width;
}

// A row, which one it is in its group, and the tile where the group's scales begin.
struct RowPlace {
  long long row;
  unsigned in_group, first_tile;
  int group;
};

__device__ inline long long scale_place(const Setting& s, const Rows& rows, const RowPlace& at, int block) {
  const int blocks = scales_of_row(s);
  if (rows.order == RowOrder::in_place) return at.row * blocks + block;
  if (s.layout == Layout::transposed)
    return rows.order == RowOrder::padded ? (static_cast<long long>(at.group) * blocks + block) * s.stride + at.in_group
                                          : block * rows.capacity + at.row;
  if (s.layout != Layout::tiled) return at.row * blocks + block;
  // [tile, column of tiles, row % 32, row % 128 / 32, block % 4]
  const long long tile = at.first_tile + at.in_group / 128;
  return ((tile * ((blocks + 3) / 4) + block / 4) * 32 + at.in_group % 32) * 16 + at.in_group % 128 / 32 * 4 +
         block % 4;
}

__device__ inline unsigned scale_at(const Setting& s, const Rows& rows, const RowPlace& at, int block) {
  const long long place = scale_place(s, rows, at, block);
  return s.format == Format::fp8_block128 ? reinterpret_cast<const unsigned*>(rows.scales)[place] : rows.scales[place];
}

struct BlockScale {
  unsigned stored;
  float multiplier;
};

// The ceil rule: the smallest power of two with 448 times it no less than the largest.
__device__ inline unsigned ceil_byte(float amax) {
  int exponent = -127;
  if (amax > 0) {  // amax = m * 2^e with m from 1/2 to 1; 448 = 7/8 * 2^9
    const float m = frexpf(amax, &exponent);
    exponent += m > 0.875f ? -8 : -9;
  }
  return static_cast<unsigned>(exponent + 127);
}
// The even rule for E2M1: one mantissa bit, largest exponent 2.
__device__ inline unsigned even_byte(float amax) {
  const unsigned field = (__float_as_uint(amax) + (1u << 21)) >> 23 & 255u;
  return field > 2 ? field - 2 : 0;
}
__device__ inline BlockScale power_of_two(unsigned byte) { return {byte, ldexpf(1.0f, 127 - static_cast<int>(byte))}; }

__device__ inline BlockScale scale_of(Format format, float input_scale, float amax) {
  switch (format) {
    case Format::fp8_block128_ue8m0:
      return power_of_two(ceil_byte(fmaxf(amax, 1e-4f)));
    case Format::mxfp8:
      return power_of_two(ceil_byte(amax));
    case Format::mxfp4:
      return power_of_two(even_byte(amax));
    case Format::nvfp4: {
      const unsigned code = e4m3_of(__fdiv_rn(__fmul_rn(input_scale, amax), 6.0f));
      return {code, code == 0 ? 0.0f : __fdiv_rn(input_scale, float_of_e4m3(code))};
    }
    default:
      amax = fmaxf(amax, 1e-4f);
      return {__float_as_uint(__fdiv_rn(amax, 448.0f)), __fdiv_rn(448.0f, amax)};
  }
}

// One block of columns by a warp, up to four columns a lane: its scale and its codes.
__device__ inline void check_block(const Setting& s, unsigned key, int block, const std::uint8_t* payload,
                                   const Rows& rows, const RowPlace& at, Found& found) {
  const int lane = static_cast<int>(threadIdx.x % 32), width = scale_width(s.format);
  float values[4], amax = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = block * width + i * 32 + lane;
    const bool exists = i * 32 + lane < width && column < s.hidden;
    values[i] = exists ? token_value(s, key, static_cast<unsigned>(column)) : 0.0f;
    amax = fmaxf(amax, fabsf(values[i]));
  }
  const BlockScale scale = scale_of(s.format, s.input_scale, largest_in_warp(amax));
  if (lane == 0) found.compare(Wrong::scale, block, scale.stored, scale_at(s, rows, at, block));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = block * width + i * 32 + lane;
    if (i * 32 + lane >= width || column >= s.hidden) continue;
    const float scaled = __fmul_rn(values[i], scale.multiplier);
    if (code_bits(s.format) == 8)
      found.compare(Wrong::payload, column, e4m3_of(scaled), payload[column]);
    else  // the even column in the low half
      found.compare(Wrong::payload, column, e2m1_of(scaled), payload[column / 2] >> column % 2 * 4 & 15u);
  }
}

// The whole row, by the warps of a block.
__device__ inline void check_row_bytes(const Setting& s, unsigned key, const Rows& rows, const RowPlace& at,
                                       Found& found) {
  const int warp = static_cast<int>(threadIdx.x / 32), warps = static_cast<int>(blockDim.x / 32);
  if (s.format == Format::bf16) {
    const auto* payload = reinterpret_cast<const std::uint16_t*>(rows.payload) + at.row * s.hidden;
    for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += static_cast<int>(blockDim.x))
      found.compare(Wrong::payload, column, bf16_of_float(token_value(s, key, static_cast<unsigned>(column))),
                    payload[column]);
    return;
  }
  const std::uint8_t* payload = rows.payload + at.row * (s.hidden * code_bits(s.format) / 8);
  for (int block = warp; block < scales_of_row(s); block += warps) check_block(s, key, block, payload, rows, at, found);
}

}  // namespace ferry::stress
