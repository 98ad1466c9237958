// Which scales a warp stores, and where they lie (scales.cuh): plain arithmetic, which the host does, too.
#pragma once

#include <cstdint>

#include "ferry/detail/layout/scale_layout.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

// 4-byte words of a row's scales, if neighbouring words of a message are not neighbours in the tensor. 0 if they are,
// or if the scales of a message do not begin at a multiple of 16 bytes.
constexpr int scattered_scale_words(ScaleLayout layout, int scale_bytes, int scales_per_row, std::int64_t row_bytes) {
  if (row_bytes % 16 != 0) return 0;
  if (layout == ScaleLayout::transposed && scale_bytes == 4) return scales_per_row;
  if (layout == ScaleLayout::tiled && scale_bytes == 1) return tiled_scales_per_row(scales_per_row) / kScaleTileColumns;
  return 0;
}

// A warp's unit of work: 32 bytes of the scales of each row of a tile.
inline constexpr int kScaleStripBytes = 32;
constexpr int scale_strips(const ScaleTensor& tensor) {
  return (tensor.scales_per_row * tensor.scale_bytes + kScaleStripBytes - 1) / kScaleStripBytes;
}

// A tile: 128 rows of a group, or its last rows.
struct ScaleTile {
  int group;
  std::uint32_t first_row;  // within the group
};

// The tiles of all groups, from scales_offset_of.
FERRY_HD inline std::uint32_t first_tile_of(const RowStarts& starts, int group) {
  return starts.tiles[group] + starts.group[group] / kScaleTileRows;
}
FERRY_HD inline std::uint32_t count_tiles(const RowStarts& starts, int groups) {
  return first_tile_of(starts, groups - 1) + static_cast<std::uint32_t>(scale_blocks(starts.filled[groups - 1]));
}
// The tile with this number.
FERRY_HD inline ScaleTile find_tile(const RowStarts& starts, int groups, std::uint32_t index) {
  int first = 0;  // the group that has it, or a group before that
  int end = groups;
  while (end - first > 1) {
    const int middle = (first + end) / 2;
    (first_tile_of(starts, middle) <= index ? first : end) = middle;
  }
  return {first, (index - first_tile_of(starts, first)) * kScaleTileRows};
}

// The source of row `in_group` of a local expert. of_source is counted from the group's first row.
FERRY_HD inline int source_of(const Plan& plan, const RowStarts& starts, int local, std::uint32_t in_group) {
  const int experts = plan.local_experts();
  int source = plan.shape.ranks - 1;
  while (starts.of_source[source * experts + local] > in_group) --source;
  return source;
}

}  // namespace ferry::cuda
