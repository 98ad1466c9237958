// Rows as a kernel that decodes them finds them: which hold a token, where their scales lie, and where their values go.
#pragma once

#include "ferry/detail/cuda/activation/decode_rows_launch.h"
#include "ferry/detail/cuda/activation/row_memory.cuh"
#include "ferry/detail/formats/packing.h"
#include "ferry/detail/formats/rounded.h"

namespace ferry::cuda {

// Rows from this one on hold no token.
__device__ inline std::uint32_t end_of_rows(const DecodeRowsParams& p) {
  if (p.end == nullptr) return p.capacity;
  const std::uint32_t end = *p.end;
  return end < p.capacity ? end : p.capacity;
}

// Whether a row below end_of_rows may hold a token: of padded rows it does, of the others src_info says so.
__device__ inline bool is_in_group(const DecodeRowsParams& p, std::uint32_t row) {
  if (p.counts == nullptr) return true;
  const std::uint32_t group = row / p.stride;
  return group < static_cast<std::uint32_t>(p.groups) &&
         static_cast<std::int64_t>(row - group * p.stride) < p.counts[group];
}
__device__ inline bool has_source(const DecodeRowsParams& p, std::uint32_t row) {
  return p.src_info == nullptr || p.src_info[2 * std::uint64_t{row}] >= 0;
}

// Where the scales of a row lie.
__device__ inline ScaleRow scales_of_row(const DecodeRowsParams& p, std::uint32_t row) {
  if (p.order == RowOrder::padded) {
    const std::uint32_t group = row / p.stride;
    const std::uint32_t offset = p.scales_offsets == nullptr ? 0u : p.scales_offsets[group];
    return padded_scale_row(p.scales, {row, std::int64_t{group} * p.stride, offset});
  }
  if (p.scales_offsets == nullptr) return {row};
  const int group = group_with_row(p.row_offsets, p.groups, row);
  return {row, p.row_offsets[group], p.scales_offsets[group]};
}

// Copies the scale of a block of a row to `to`; 0 where its tile lies outside the tensor.
template <TokenFormat F>
__device__ void load_scale(const DecodeRowsParams& p, const ScaleRow& at, int block, std::byte* to) {
  constexpr F kFormat{};
  constexpr int kBytes = kFormat.scale_bytes();
  ScaleTensor tensor = p.scales;
  if (!may_have_tiles(kFormat) || tensor.layout != ScaleLayout::tiled) tensor.layout = kFormat.scale_layout();
  const std::int64_t index = scale_index(tensor, at, block);
  const bool is_inside = static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(p.scale_elements);
  ferry::detail::put_scale(to, is_inside ? tensor.base + index * kBytes : nullptr, kBytes);
}

__device__ inline float input_scale_of(const DecodeRowsParams& p) {
  return p.input_scale == nullptr ? 1.0f : *p.input_scale;
}
// What a row's values are multiplied by.
__device__ inline float factor_of(const DecodeRowsParams& p, std::uint32_t row) {
  return p.global_scales.are_given() ? p.global_scales.at(row) : 1.0f;
}

// Stores eight columns from `column` on, a multiple of 8, rounded to the dtype, 16 bytes at a time.
__device__ inline void store_eight(const DecodeRowsParams& p, std::uint32_t row, int column, const float (&values)[8]) {
  const std::uint64_t at = std::uint64_t{row} * static_cast<unsigned>(p.hidden) + static_cast<unsigned>(column);
  std::uint32_t words[8];
  if (p.dtype == DType::f32) {
    for (int i = 0; i < 8; ++i) words[i] = codec::bits_of(values[i]);
    return codec::store_words<8>(words, p.values + 4 * at);
  }
  const bool is_bf16 = p.dtype == DType::bf16;
  for (int i = 0; i < 4; ++i) {
    const float first = values[2 * i], second = values[2 * i + 1];
    words[i] = is_bf16 ? ptx::two_bf16(first, second) : ptx::two_f16(first, second);
  }
  codec::store_words<4>(words, p.values + 2 * at);
}

}  // namespace ferry::cuda
