// The kernel that decodes rows of a format that decodes whole rows only: a block of threads has a row's codes and
// scales in shared memory, decodes them there, and stores the values.
#pragma once

#include "ferry/detail/cuda/activation/decoded_rows.cuh"
#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

// The codes and scales of a row, in column order.
template <TokenFormat F>
__device__ void load_row(const DecodeRowsParams& p, const BlockGroup& block, std::uint32_t row,
                         const RowMemory<F>& to) {
  const auto* const codes = reinterpret_cast<const std::uint64_t*>(p.payload + row * p.payload_row_bytes);
  auto* const words = reinterpret_cast<std::uint64_t*>(to.payload);  // a row is a multiple of 8 bytes
  const auto count = static_cast<int>(p.payload_row_bytes / 8);
  for (int i = block.thread(); i < count; i += block.size()) words[i] = codes[i];
  constexpr int kScaleBytes = F{}.scale_bytes();
  if constexpr (kScaleBytes != 0) {
    const ScaleRow at = scales_of_row(p, row);
    for (int i = block.thread(); i < p.scales.scales_per_row; i += block.size())
      load_scale<F>(p, at, i, to.scales + i * kScaleBytes);
  }
}

// `values` of null are zeros.
__device__ inline void store_row(const DecodeRowsParams& p, const BlockGroup& block, std::uint32_t row,
                                 const float* values) {
  const float factor = values == nullptr ? 0.0f : factor_of(p, row);
  for (int column = block.thread() * kDecodeColumns; column < p.hidden; column += block.size() * kDecodeColumns) {
    float eight[8] = {};
    for (int i = 0; values != nullptr && i < 8; ++i) eight[i] = codec::multiply_rounded(values[column + i], factor);
    store_eight(p, row, column, eight);
  }
}

template <TokenFormat F>
__global__ void __launch_bounds__(kDecodeThreads) decode_row_kernel(const __grid_constant__ DecodeRowsParams p) {
  extern __shared__ __align__(16) std::byte decode_row_memory[];
  const BlockGroup block;
  const RowMemory<F> memory(decode_row_memory, p.hidden);
  ptx::await_earlier_kernels();
  ptx::let_next_kernel_launch();
  const std::uint32_t rows = end_of_rows(p);
  const std::uint32_t end = p.zero_padding ? p.capacity : rows;
  const float input_scale = input_scale_of(p);
  for (std::uint32_t row = blockIdx.x; row < end; row += gridDim.x) {
    const bool has_token = row < rows && is_in_group(p, row) && has_source(p, row);
    if (has_token) {
      load_row<F>(p, block, row, memory);
      block.sync();
      F{}.decode(block, memory.payload, memory.scales, p.hidden, input_scale, memory.values);
      block.sync();
    }
    if (has_token || p.zero_padding) store_row(p, block, row, has_token ? memory.values : nullptr);
    block.sync();  // the next row takes the same memory
  }
}

}  // namespace ferry::cuda
