// The kernel that decodes rows of a format with decode_columns: warps take stretches of rows in turn, each thread eight
// columns of a stretch at a time. Eight columns of bf16 are a store of 16 bytes, and a warp's stores lie side by side.
#pragma once

#include "ferry/detail/cuda/activation/decoded_rows.cuh"
#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

// A stretch of a row: the first warps of the grid have the first stretches.
struct StretchOfRow {
  std::uint32_t row;
  int stretch;

  __device__ static StretchOfRow first_of(const DecodeRowsParams& p) {
    const unsigned warp = blockIdx.x * kDecodeWarps + threadIdx.x / WarpGroup::kWidth;
    const auto stretches = static_cast<unsigned>(p.stretches);
    return {warp / stretches, static_cast<int>(warp % stretches)};
  }
  // To the warp's next stretch.
  __device__ void step(const DecodeRowsParams& p) {
    row += p.step_rows;
    stretch += p.step_stretches;
    if (stretch < p.stretches) return;
    stretch -= p.stretches;
    ++row;
  }
  // The first column of a thread's eight number `eight`.
  __device__ int column(int eight) const {
    return stretch * kStretchColumns + (eight * WarpGroup::kWidth + WarpGroup{}.thread()) * kDecodeColumns;
  }
};

// The scale of a block, for decode_columns.
struct alignas(4) LoadedScale {
  std::byte bytes[4];
};

// A row that may hold a token. All loads come before the first store, and none waits for another: first scales, then
// codes. Threads behind the row's end load its last columns, and padding is loaded, too, so that no load waits for a
// comparison.
template <DecodesColumns F>
__device__ void decode_stretch(const DecodeRowsParams& p, const StretchOfRow& at, float input_scale) {
  constexpr F kFormat{};
  constexpr unsigned kBlock = kFormat.block() == 0 ? kStretchColumns : kFormat.block();
  const std::byte* const payload = p.payload + at.row * p.payload_row_bytes;
  const bool has_token = has_source(p, at.row);
  const float factor = factor_of(p, at.row);
  const ScaleRow scales_at = scales_of_row(p, at.row);
  const auto column_of = [&](int eight) {
    return static_cast<unsigned>(min(at.column(eight), p.hidden - kDecodeColumns));
  };
  LoadedScale scales[kDecodeEights] = {};
  if constexpr (kFormat.block() != 0) {
#pragma unroll
    for (int eight = 0; eight < kDecodeEights; ++eight)
      load_scale<F>(p, scales_at, static_cast<int>(column_of(eight) / kBlock), scales[eight].bytes);
  }
  if constexpr (takes_input_scale(kFormat)) {  // whose branches keep the compiler from loading ahead
#pragma unroll
    for (int eight = 0; eight < kDecodeEights; ++eight)
      ptx::prefetch_to_l1(payload + kFormat.payload_bytes(static_cast<int>(column_of(eight))));
  }
  float values[kDecodeEights][8];
#pragma unroll
  for (int eight = 0; eight < kDecodeEights; ++eight) {
    const unsigned in_block = column_of(eight) % kBlock;
    F::decode_columns(payload + kFormat.payload_bytes(static_cast<int>(column_of(eight) - in_block)),
                      scales[eight].bytes, static_cast<int>(in_block), input_scale, values[eight]);
  }
  const bool stores = has_token || p.zero_padding;
#pragma unroll
  for (int eight = 0; eight < kDecodeEights; ++eight) {
    for (float& value : values[eight]) value = has_token ? codec::multiply_rounded(value, factor) : 0.0f;
    if (stores && at.column(eight) < p.hidden) store_eight(p, at.row, at.column(eight), values[eight]);
  }
}

__device__ inline void zero_stretch(const DecodeRowsParams& p, const StretchOfRow& at) {
  constexpr float kZeros[8] = {};
  for (int eight = 0; eight < kDecodeEights; ++eight)
    if (at.column(eight) < p.hidden) store_eight(p, at.row, at.column(eight), kZeros);
}

template <DecodesColumns F>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeBlocks)
    decode_columns_kernel(const __grid_constant__ DecodeRowsParams p) {
  ptx::await_earlier_kernels();
  ptx::let_next_kernel_launch();
  const std::uint32_t rows = end_of_rows(p);
  const std::uint32_t end = p.zero_padding ? p.capacity : rows;
  const float input_scale = input_scale_of(p);
#pragma unroll 1
  for (StretchOfRow at = StretchOfRow::first_of(p); at.row < end; at.step(p)) {
    if (at.row < rows && is_in_group(p, at.row))
      decode_stretch<F>(p, at, input_scale);
    else if (p.zero_padding)
      zero_stretch(p, at);
  }
}

}  // namespace ferry::cuda
