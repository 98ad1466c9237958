// The index of a row's scales in the scale tensor: row-major, transposed, or in tiles of 128 rows by 4 scales. No other
// file computes such an index. docs/formats.md shows the layouts.
//
// A row belongs to a group (an expert) whose first row is `first_row`; `scales_offset` is the group's entry of
// scales_offsets. Only tiles need these two.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/formats/thread_group.h"
#include "ferry/token_format.h"

namespace ferry {

inline constexpr int kScaleTileRows = 128;
inline constexpr int kScaleTileColumns = 4;
inline constexpr int kScaleTileBytesPerScale = kScaleTileRows * kScaleTileColumns;

// A scale tensor. Trivially copyable: passed to kernels by value. Without scales, layout is none.
struct ScaleTensor {
  std::byte* base = nullptr;
  ScaleLayout layout = ScaleLayout::none;
  int scale_bytes = 0;
  int scales_per_row = 0;
  std::int64_t row_capacity = 0;
};

struct ScaleRow {
  std::int64_t row = 0;        // in the tensor
  std::int64_t first_row = 0;  // of the row's group
  std::uint32_t scales_offset = 0;
};

// Scales in a row of tiles: scales_per_row rounded up.
FERRY_HD constexpr int tiled_scales_per_row(int scales_per_row) { return (scales_per_row + 3) / 4 * 4; }

// How many tiles of 128 rows a group of `rows` rows takes.
FERRY_HD constexpr std::int64_t scale_blocks(std::int64_t rows) { return (rows + kScaleTileRows - 1) / kScaleTileRows; }

// A group's entry of scales_offsets; `blocks_before` is the sum of scale_blocks of the groups before it.
FERRY_HD constexpr std::uint32_t scales_offset_of(std::int64_t blocks_before, std::int64_t first_row) {
  return static_cast<std::uint32_t>(blocks_before - first_row / kScaleTileRows);
}

// Index, counted in scales, of scale `column` of a row. For tiles, column may reach tiled_scales_per_row.
FERRY_HD constexpr std::int64_t scale_index(const ScaleTensor& tensor, const ScaleRow& at, int column) {
  if (tensor.layout == ScaleLayout::transposed) return column * tensor.row_capacity + at.row;
  if (tensor.layout == ScaleLayout::row_major) return at.row * tensor.scales_per_row + column;
  // Rows, tiles and columns are below 2^32. Unsigned 32-bit arithmetic is cheaper on a GPU.
  const auto first_row = static_cast<std::uint32_t>(at.first_row);
  const std::uint32_t in_group = static_cast<std::uint32_t>(at.row) - first_row;
  const std::uint32_t block = first_row / kScaleTileRows + at.scales_offset + in_group / kScaleTileRows;
  const auto at_column = static_cast<std::uint32_t>(column);
  const auto tiles = static_cast<std::uint32_t>(tiled_scales_per_row(tensor.scales_per_row) / kScaleTileColumns);
  const std::uint32_t in_tile =
      in_group % 32 * 16 + in_group % kScaleTileRows / 32 * kScaleTileColumns + at_column % kScaleTileColumns;
  return (std::int64_t{block} * tiles + at_column / kScaleTileColumns) * kScaleTileBytesPerScale + in_tile;
}

// Where the scales of a row lie if rows are padded. Transposed ones lie group by group, [groups, scales per row,
// stride]: to a group they are a transposed tensor of `stride` rows (ScaleTensor::row_capacity), which begins as many
// scales further as all rows before it have.
FERRY_HD constexpr ScaleRow padded_scale_row(const ScaleTensor& tensor, const ScaleRow& at) {
  if (tensor.layout != ScaleLayout::transposed) return at;
  return {at.row + at.first_row * (tensor.scales_per_row - 1), at.first_row, at.scales_offset};
}

// Scales in the whole tensor, for a number of groups.
FERRY_HD constexpr std::int64_t scale_tensor_elements(const ScaleTensor& tensor, int groups) {
  if (tensor.layout == ScaleLayout::none) return 0;
  if (tensor.layout != ScaleLayout::tiled) return tensor.row_capacity * tensor.scales_per_row;
  return (scale_blocks(tensor.row_capacity) + groups) * kScaleTileRows * tiled_scales_per_row(tensor.scales_per_row);
}

namespace detail {

// Copies a scale of any size; byte by byte only for unusual sizes.
FERRY_HD inline void put_scale(std::byte* to, const std::byte* from, int scale_bytes) {
  if (scale_bytes == 1) {
    *to = from == nullptr ? std::byte{0} : *from;
  } else if (scale_bytes == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = from == nullptr ? 0u : *reinterpret_cast<const std::uint32_t*>(from);
  } else {
    for (int i = 0; i < scale_bytes; ++i) to[i] = from == nullptr ? std::byte{0} : from[i];
  }
}

}  // namespace detail

// Stores the scales of a row, which are in column order at `scales`, and 0 for the columns that tiles round up to. All
// threads of the group call it. scales == nullptr: all scales are 0.
template <ThreadGroup G>
FERRY_HD void store_scales(const G& group, const ScaleTensor& tensor, const std::byte* scales, const ScaleRow& at) {
  if (tensor.layout == ScaleLayout::none) return;
  const bool tiled = tensor.layout == ScaleLayout::tiled;
  const int columns = tiled ? tiled_scales_per_row(tensor.scales_per_row) : tensor.scales_per_row;
  for (int column = group.thread(); column < columns; column += group.size()) {
    const bool exists = scales != nullptr && column < tensor.scales_per_row;
    const std::byte* from = exists ? scales + static_cast<std::ptrdiff_t>(column) * tensor.scale_bytes : nullptr;
    detail::put_scale(tensor.base + scale_index(tensor, at, column) * tensor.scale_bytes, from, tensor.scale_bytes);
  }
}

// Stores scale 0 for a padding row.
template <ThreadGroup G>
FERRY_HD void zero_scales(const G& group, const ScaleTensor& tensor, const ScaleRow& at) {
  store_scales(group, tensor, nullptr, at);
}

// Tiles only: stores scale 0 for the rows of a group's last 128-row block from `end_row` on. These rows are in the
// scale tensor but not in the payload.
template <ThreadGroup G>
FERRY_HD void zero_scale_tail(const G& group, const ScaleTensor& tensor, std::int64_t first_row, std::int64_t end_row,
                              std::uint32_t scales_offset) {
  if (tensor.layout != ScaleLayout::tiled) return;
  const std::int64_t block_end = first_row + scale_blocks(end_row - first_row) * kScaleTileRows;
  FERRY_NO_UNROLL
  for (std::int64_t row = end_row; row < block_end; ++row)
    zero_scales(group, tensor, ScaleRow{row, first_row, scales_offset});
}

}  // namespace ferry
