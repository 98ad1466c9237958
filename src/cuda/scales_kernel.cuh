// The scales kernel: stores the scales of a large round when all its rows are laid out (I20). Scales that lie side by
// side in the scale tensor come in different messages: stored with each row, every word is a sector of memory of its
// own. Here a warp has 128 rows of a group, each lane four of them, 32 apart, which makes whole lines of either layout.
// It waits for nobody but the kernel before it.
#pragma once

#include <cstdint>

#include "cuda/kernel_params.h"
#include "cuda/ptx_launch.cuh"
#include "cuda/scale_tiles.h"
#include "cuda/team_group.cuh"
#include "cuda/team_rows.cuh"

namespace ferry::cuda {

// One warp's part of a tile: kScalePartBytes of each row.
class ScaleStores {
 public:
  __device__ ScaleStores(const ScalesParams& p, const RowStarts& starts, Epoch epoch, const ScaleTile& tile, int part)
      : p_(p), epoch_(epoch), first_column_(part * kScalePartBytes / p.scales.scale_bytes) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::uint32_t first = starts.group[tile.group];
    const std::uint32_t in_group = tile.first_row + static_cast<std::uint32_t>(lane);
    rows_ = static_cast<int>(starts.group[tile.group + 1] - first) - static_cast<int>(in_group);
    const ScaleRow row{first + in_group, first, starts.tiles[tile.group]};
    to_ = p.scales.base + scale_index(p.scales, row, first_column_) * p.scales.scale_bytes;
    find_messages(starts, tile.group, in_group, p.payload_bytes + static_cast<std::size_t>(part) * kScalePartBytes);
  }

  __device__ void store() const {
    constexpr int kVectors = kScalePartBytes / sizeof(uint4);
    uint4 loaded[kVectors][kRows];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        loaded[v][i] =
            from_[i] == nullptr || left_of(4 * v) <= 0 ? uint4{} : reinterpret_cast<const uint4*>(from_[i])[v];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const uint4(&row)[kRows] = loaded[v];
      store_word(4 * v, row[0].x, row[1].x, row[2].x, row[3].x);
      store_word(4 * v + 1, row[0].y, row[1].y, row[2].y, row[3].y);
      store_word(4 * v + 2, row[0].z, row[1].z, row[2].z, row[3].z);
      store_word(4 * v + 3, row[0].w, row[1].w, row[2].w, row[3].w);
    }
  }

 private:
  static constexpr int kRows = kScaleTileRows / 32;  // of a lane

  // Where this part of the scales of this lane's rows came, `offset` into a message; null where there is none.
  __device__ void find_messages(const RowStarts& starts, int group, std::uint32_t in_group, std::size_t offset) {
    const int local = group - p_.plan.shared_groups;
    const std::uint32_t first = starts.group[group];
    int token[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const std::uint32_t row = in_group + 32 * i;
      token[i] = row < starts.filled[group] ? p_.src_info[2 * static_cast<std::size_t>(first + row)] : -1;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      from_[i] = nullptr;
      if (token[i] < 0) continue;
      const int source = local < 0 ? p_.plan.rank : source_of(p_.plan, starts, local, in_group + 32 * i);
      from_[i] = p_.heap + p_.plan.map.message(epoch_, source, token[i]) + offset;
    }
  }

  // Columns of the row from word `word` of the part on.
  __device__ int left_of(int word) const {
    return p_.scales.scales_per_row - first_column_ - word * 4 / p_.scales.scale_bytes;
  }

  // Four bytes of the scales of each of this lane's rows. In a tile they lie together. Padding has scale 0.
  __device__ void store_word(int word, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) const {
    const int left = left_of(word);
    if (left <= 0) return;
    if (p_.scales.layout == ScaleLayout::tiled) {
      const std::uint32_t kept = left >= kScaleTileColumns ? ~0u : (1u << 8 * left) - 1u;  // columns past the row: 0
      *reinterpret_cast<uint4*>(to_ + word * kScaleTileBytesPerScale) = uint4{a & kept, b & kept, c & kept, d & kept};
      return;
    }
    std::uint32_t* words = reinterpret_cast<std::uint32_t*>(to_) + word * p_.scales.row_capacity;
    if (rows_ > 0) words[0] = a;
    if (rows_ > 32) words[32] = b;
    if (rows_ > 64) words[64] = c;
    if (rows_ > 96) words[96] = d;
  }

  const ScalesParams& p_;
  Epoch epoch_;
  int first_column_;
  const std::byte* from_[kRows];
  std::byte* to_;
  int rows_;  // from this lane's first one to the end of the group, padding included
};

// Into shared memory, with a barrier behind it.
__device__ inline RowStarts fetch_row_starts(const ScalesParams& p, std::uint32_t* words) {
  const int count = row_start_words(p.plan);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) words[i] = p.starts[i];
  __syncthreads();
  return row_starts_at(p.plan, words);
}

// What a warp has to do: parts of tiles, `warps.count` apart.
__device__ inline void store_share(const ScalesParams& p, const RowStarts& starts, Epoch epoch, const Block& warps) {
  const int groups = p.plan.groups();
  const int units = static_cast<int>(count_tiles(starts, groups)) * p.by_parts.divisor();
#pragma unroll 1
  for (int unit = warps.index; unit < units; unit += warps.count) {
    const int tile = p.by_parts.quotient(unit);
    ScaleStores(p, starts, epoch, find_tile(starts, groups, static_cast<std::uint32_t>(tile)),
                unit - tile * p.by_parts.divisor())
        .store();
  }
}

static __global__ void __launch_bounds__(kThreads, 2) scales_kernel(const __grid_constant__ ScalesParams p) {
  extern __shared__ __align__(16) std::uint32_t words[];
  ptx::let_next_kernel_launch();  // this one waits for no other block, and the next one for its end
  ptx::await_earlier_kernels();
  const Epoch epoch = load_relaxed(p.state->dispatched);
  const bool broken = load_relaxed(p.state->failed) != 0;
  const RowStarts starts = fetch_row_starts(p, words);
  if (broken) return;
  store_share(p, starts, epoch, teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)}));
}

}  // namespace ferry::cuda
