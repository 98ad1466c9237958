// RowGroups finds the group of a row. zero_scale_tails zeroes the scales in a group's last tile behind its last row.
#pragma once

#include "ferry/detail/cuda/activation/swiglu_launch.h"
#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/layout/scale_layout.h"

namespace ferry::cuda {

// A warp's first turn: the first warps of all blocks come before the second ones.
__device__ inline int first_turn() {
  return static_cast<int>(threadIdx.x) / WarpGroup::kWidth * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
}
__device__ inline int warps_of_grid() { return static_cast<int>(gridDim.x) * kSwigluWarps; }

// The group of the row that a thread works on; rows only grow. A warp holds 32 neighbouring groups, one in each thread,
// and its threads search them together.
class RowGroups {
 public:
  __device__ explicit RowGroups(const SwigluParams& p) {
    if (p.by_group) hold(p, 0);
  }

  // All threads of the warp call it, each with a row that exists. The first thread has the lowest row.
  __device__ void move_to(const SwigluParams& p, std::uint32_t row) {
    if (all(row < end_)) return;
    int at = count(held_end_ <= row_of_first(row));
    for (;;) {
      if (at == WarpGroup::kWidth) {
        if (held_from_ + at >= p.work.groups) return;  // only where row_offsets fall, which is a mistake of the caller
        hold_group_of(p, row_of_first(row));
        at = count(held_end_ <= row_of_first(row));
        continue;
      }
      const std::uint32_t first = from(held_first_, at);
      const std::uint32_t end = from(held_end_, at);
      const std::uint32_t scales_offset = from(held_offset_, at);
      const float input_scale = __shfl_sync(WarpGroup::kAllThreads, held_scale_, at);
      if (row >= first) {
        first_ = first;
        end_ = end;
        scales_offset_ = scales_offset;
        input_scale_ = input_scale;
      }
      if (all(row < end)) return;
      ++at;
    }
  }

  __device__ float input_scale() const { return input_scale_; }
  __device__ ScaleRow scale_row(std::uint32_t row) const { return {row, first_, scales_offset_}; }

 private:
  __device__ static bool all(bool condition) { return __all_sync(WarpGroup::kAllThreads, condition) != 0; }
  __device__ static int count(bool condition) { return __popc(__ballot_sync(WarpGroup::kAllThreads, condition)); }
  __device__ static std::uint32_t from(std::uint32_t value, int thread) {
    return __shfl_sync(WarpGroup::kAllThreads, value, thread);
  }
  __device__ static std::uint32_t row_of_first(std::uint32_t row) { return from(row, 0); }

  // A thread without a group holds an end that no row reaches.
  __device__ void hold(const SwigluParams& p, int from_group) {
    held_from_ = from_group;
    const int group = from_group + WarpGroup{}.thread();
    held_end_ = 0xffffffffu;
    if (group >= p.work.groups) return;
    held_first_ = p.work.row_offsets[group];
    held_end_ = p.work.row_offsets[group + 1];
    if (p.work.scales_offsets != nullptr) held_offset_ = p.work.scales_offsets[group];
    if (p.work.input_scales != nullptr) held_scale_ = p.work.input_scales[group];
  }
  // A thread looks at the end of every 32nd group: 1024 groups at a time.
  __device__ void hold_group_of(const SwigluParams& p, std::uint32_t row) {
    int runs = held_from_ / WarpGroup::kWidth + 1;
    for (int passed = WarpGroup::kWidth; passed == WarpGroup::kWidth; runs += passed) {
      const int end = (runs + WarpGroup{}.thread() + 1) * WarpGroup::kWidth;
      passed = count(end < p.work.groups && p.work.row_offsets[end] <= row);
    }
    hold(p, runs * WarpGroup::kWidth);
  }

  std::uint32_t first_ = 0;
  std::uint32_t end_ = 0;
  std::uint32_t scales_offset_ = 0;
  float input_scale_ = 1.0f;
  // The group that this thread holds for the warp.
  int held_from_ = 0;
  std::uint32_t held_first_ = 0;
  std::uint32_t held_end_ = 0xffffffffu;
  std::uint32_t held_offset_ = 0;
  float held_scale_ = 1.0f;
};

// Zeroes the scales of four columns in the rows lane, lane + 32, lane + 64 and lane + 96 of a tile, except in rows
// below `taken`. These scales lie side by side.
__device__ inline void zero_four_rows(std::byte* to, int lane, int taken) {
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (address % 16 == 0 && lane >= taken) {
    *reinterpret_cast<uint4*>(to) = make_uint4(0u, 0u, 0u, 0u);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (lane + 32 * i < taken) continue;
    std::byte* const four = to + kScaleTileColumns * i;
    if (address % 4 == 0)
      *reinterpret_cast<std::uint32_t*>(four) = 0u;
    else
      for (int column = 0; column < kScaleTileColumns; ++column) four[column] = std::byte{0};
  }
}

// For tiled scales only: zeroes the scales of the rows in each group's last tile that lie past the group's end. A warp
// takes a tile at a time. Warps that have no rows come first.
__device__ inline void zero_scale_tails(const SwigluParams& p) {
  const int lane = WarpGroup{}.thread();
  const int tile_columns = p.tile_columns.divisor();
  const int tiles = p.work.groups * tile_columns;
#pragma unroll 1
  for (int tile = warps_of_grid() - 1 - first_turn(); tile < tiles; tile += warps_of_grid()) {
    const int group = p.tile_columns.quotient(tile);
    const std::uint32_t first = p.work.row_offsets[group];
    const std::uint32_t rows = p.work.row_offsets[group + 1] - first;
    const auto taken = static_cast<int>(rows % kScaleTileRows);
    const std::uint32_t block = first / kScaleTileRows + p.work.scales_offsets[group] + rows / kScaleTileRows;
    const std::uint64_t index = (std::uint64_t{block} * static_cast<unsigned>(tile_columns) +
                                 static_cast<unsigned>(tile - group * tile_columns)) *
                                    kScaleTileBytesPerScale +
                                static_cast<unsigned>(lane) * 16u;
    if (taken != 0 && index < static_cast<std::uint64_t>(p.scale_elements))
      zero_four_rows(p.work.scales.base + index, lane, taken);
  }
}

}  // namespace ferry::cuda
