// SwiGLU into a format that encodes whole rows only: a block of threads activates a row in shared memory, encodes it
// there, and stores its codes and scales.
#pragma once

#include "ferry/detail/activation/swiglu_math.h"
#include "ferry/detail/cuda/activation/row_memory.cuh"
#include "ferry/detail/cuda/activation/swiglu_launch.h"
#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/layout/scale_layout.h"

namespace ferry::cuda {

// The group of a row: where its scales lie, and its input scale.
struct GroupOfRow {
  ScaleRow scales;
  float input_scale;
};
__device__ inline GroupOfRow group_of_row(const SwigluParams& p, std::uint32_t row) {
  const int group = p.by_group ? group_with_row(p.work.row_offsets, p.work.groups, row) : 0;
  return {{row, p.work.row_offsets[group], p.work.scales_offsets == nullptr ? 0u : p.work.scales_offsets[group]},
          p.work.input_scales == nullptr ? 1.0f : p.work.input_scales[group]};
}

template <class Input, bool kInterleaved, bool kClamped>
__device__ void activate_row(const SwigluParams& p, const BlockGroup& block, std::uint32_t row, float* values) {
  const std::byte* const from = p.work.rows + std::uint64_t{row} * p.row_bytes;
  const activation::SwigluSource<Input, kInterleaved, kClamped> source{
      reinterpret_cast<const typename Input::Stored*>(from), p.work.inter, p.alpha, p.limit};
  for (int column = block.thread(); column < p.work.inter; column += block.size()) {
    std::uint32_t bits[1];
    source.template load<1>(column, 1, bits);
    values[column] = codec::float_of(codec::with_one_nan(bits[0]));
  }
}

// As ferry::store_scales, but never outside the tensor: tiles may lie anywhere. Null: scale 0 everywhere.
__device__ inline void store_scales_within(const SwigluParams& p, const BlockGroup& block, const std::byte* scales,
                                           const ScaleRow& at) {
  const ScaleTensor& tensor = p.work.scales;
  const int columns =
      tensor.layout == ScaleLayout::tiled ? tiled_scales_per_row(tensor.scales_per_row) : tensor.scales_per_row;
  for (int column = block.thread(); column < columns; column += block.size()) {
    const std::int64_t index = scale_index(tensor, at, column);
    if (index >= p.scale_elements) continue;
    const bool exists = scales != nullptr && column < tensor.scales_per_row;
    ferry::detail::put_scale(tensor.base + index * tensor.scale_bytes,
                             exists ? scales + column * tensor.scale_bytes : nullptr, tensor.scale_bytes);
  }
}

// Tiles only: scale 0 for the rows of each group's last tile that lie past the group's end. Blocks share the groups.
__device__ inline void zero_tails_of_groups(const SwigluParams& p, const BlockGroup& block) {
  for (int group = static_cast<int>(blockIdx.x); group < p.work.groups; group += static_cast<int>(gridDim.x)) {
    const std::int64_t first = p.work.row_offsets[group];
    const std::int64_t end = p.work.row_offsets[group + 1];
    const std::int64_t tiles_end = first + scale_blocks(end - first) * kScaleTileRows;
    for (std::int64_t row = end; row < tiles_end; ++row)
      store_scales_within(p, block, nullptr, {row, first, p.work.scales_offsets[group]});
  }
}

__device__ inline void store_payload(const SwigluParams& p, const BlockGroup& block, std::uint32_t row,
                                     const std::byte* payload) {
  const auto* const from = reinterpret_cast<const std::uint64_t*>(payload);  // a row is a multiple of 8 bytes
  auto* const to = reinterpret_cast<std::uint64_t*>(p.work.payload + std::uint64_t{row} * p.payload_row_bytes);
  for (unsigned i = threadIdx.x; i < p.payload_row_bytes / 8; i += blockDim.x) to[i] = from[i];
}

template <TokenFormat F, class Input, bool kInterleaved>
__global__ void __launch_bounds__(kSwigluThreads) swiglu_row_kernel(const __grid_constant__ SwigluParams p) {
  extern __shared__ __align__(16) std::byte swiglu_row_memory[];
  const BlockGroup block;
  const RowMemory<F> memory(swiglu_row_memory, p.work.inter);
  ptx::await_earlier_kernels();
  ptx::let_next_kernel_launch();
  if (p.work.scales.layout == ScaleLayout::tiled) zero_tails_of_groups(p, block);
  const std::uint32_t offered = p.work.row_offsets[p.work.groups];
  const std::uint32_t rows = offered < p.most_rows ? offered : p.most_rows;
  for (std::uint32_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const GroupOfRow group = group_of_row(p, row);
    if (p.clamped)
      activate_row<Input, kInterleaved, true>(p, block, row, memory.values);
    else
      activate_row<Input, kInterleaved, false>(p, block, row, memory.values);
    block.sync();
    F{}.encode(block, InputRow{memory.values, DType::f32}, p.work.inter, group.input_scale, memory.payload,
               memory.scales);
    block.sync();
    store_payload(p, block, row, memory.payload);
    if (p.work.scales.layout != ScaleLayout::none) store_scales_within(p, block, memory.scales, group.scales);
    block.sync();  // the next row takes the same memory
  }
}

}  // namespace ferry::cuda
