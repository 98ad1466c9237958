// The scales of a large round, stored after all its rows are laid out (I20). Neighbouring scales of the scale tensor
// come from different messages. Stored with each row, every word would be a sector of memory of its own.
//   - A warp has 128 rows of a group, and each lane four of them, 32 apart. So it stores whole lines of either layout.
//   - Scales pass through shared memory, so that neighbouring lanes load neighbouring bytes of a message.
// scale_tiles.h has the arithmetic.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/scale_tiles.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

// What a warp holds in shared memory: kScaleStripBytes of each row.
inline constexpr int kHeldBytes = kScaleTileRows * kScaleStripBytes;
inline constexpr std::size_t kScalesSharedBytes = kThreads / 32 * kHeldBytes;  // of a block, row starts behind it

// One strip of a tile, by a warp: kScaleStripBytes of each row. `held`: this warp's.
class ScaleStores {
 public:
  __device__ ScaleStores(const ScalesParams& p, const RowStarts& starts, Epoch epoch, const ScaleTile& tile, int strip,
                         std::byte* held)
      : p_(p), epoch_(epoch), held_(held), first_column_(strip * kScaleStripBytes / p.scales.scale_bytes) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::uint32_t first = starts.group[tile.group];
    const std::uint32_t in_group = tile.first_row + static_cast<std::uint32_t>(lane);
    rows_ = static_cast<int>(starts.group[tile.group + 1] - first) - static_cast<int>(in_group);
    const ScaleRow row{first + in_group, first, starts.tiles[tile.group]};
    to_ = p.scales.base + scale_index(p.scales, row, first_column_) * p.scales.scale_bytes;
    find_messages(starts, tile.group, in_group, p.payload_bytes + static_cast<std::size_t>(strip) * kScaleStripBytes);
  }

  // Loads into shared memory. A lane loads what other lanes store.
  __device__ void fetch() const {
    constexpr int kRowsAtOnce = 32 / kVectors;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int vector = lane % kVectors;
    const bool has_scales = left_of(4 * vector) > 0;
#pragma unroll
    for (int turn = 0; turn < kScaleTileRows / kRowsAtOnce; ++turn) {
      const int row = turn * kRowsAtOnce + lane / kVectors;
      // All lanes are in the same quarter of the tile, so the compiler knows the index of from_.
      const auto at = reinterpret_cast<std::uintptr_t>(from_[turn * kRowsAtOnce / 32]);
      const auto* from = reinterpret_cast<const std::byte*>(__shfl_sync(kAllLanes, at, row % 32));
      if (from != nullptr && has_scales)
        ptx::copy_to_shared(held(row, vector), from + vector * sizeof(uint4));
      else
        *held(row, vector) = uint4{};
    }
    ptx::copies_commit();
  }
  __device__ void store() const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    ptx::copies_wait<0>();
    __syncwarp();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const uint4 row[kRows] = {*held(lane, v), *held(lane + 32, v), *held(lane + 64, v), *held(lane + 96, v)};
      store_word(4 * v, row[0].x, row[1].x, row[2].x, row[3].x);
      store_word(4 * v + 1, row[0].y, row[1].y, row[2].y, row[3].y);
      store_word(4 * v + 2, row[0].z, row[1].z, row[2].z, row[3].z);
      store_word(4 * v + 3, row[0].w, row[1].w, row[2].w, row[3].w);
    }
    __syncwarp();  // before the next strip overwrites the shared memory
  }

 private:
  static constexpr int kRows = kScaleTileRows / 32;  // of a lane
  static constexpr int kVectors = kScaleStripBytes / sizeof(uint4);

  // Swizzled: in every second group of four rows the two vectors are swapped. So eight lanes use all banks, both when
  // they write four rows and when they read one vector of eight rows.
  __device__ uint4* held(int row, int vector) const {
    static_assert(kVectors == 2);
    return reinterpret_cast<uint4*>(held_) + row * kVectors + (vector ^ (row / 4 % 2));
  }

  // from_: the address of this strip of the scales in the message of each of this lane's rows; null for padding.
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

  // Columns of the row that are left from word `word` of the strip on.
  __device__ int left_of(int word) const {
    return p_.scales.scales_per_row - first_column_ - word * 4 / p_.scales.scale_bytes;
  }

  // Stores four bytes of scales of each of this lane's rows. In a tile they are neighbours. Padding has scale 0.
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
  std::byte* held_;
  int first_column_;
  const std::byte* from_[kRows];
  std::byte* to_;
  int rows_;  // from this lane's first row to the end of the group, with padding
};

// A warp stores parts of tiles, `warps.count` apart.
__device__ inline void store_scale_share(const ScalesParams& p, const RowStarts& starts, Epoch epoch,
                                         const FixedShare& warps, std::byte* held) {
  const int groups = p.plan.groups();
  const int units = static_cast<int>(count_tiles(starts, groups)) * p.by_strips.divisor();
#pragma unroll 1
  for (int unit = warps.index; unit < units; unit += warps.count) {
    const int tile = p.by_strips.quotient(unit);
    const ScaleStores stores(p, starts, epoch, find_tile(starts, groups, static_cast<std::uint32_t>(tile)),
                             unit - tile * p.by_strips.divisor(), held);
    stores.fetch();
    stores.store();
  }
}

// Copies row starts into shared memory and ends with a barrier.
__device__ inline RowStarts fetch_row_starts(const ScalesParams& p, std::uint32_t* words) {
  const int count = row_start_words(p.plan);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) words[i] = p.starts[i];
  __syncthreads();
  return row_starts_at(p.plan, words);
}

// A block of a grid. `memory`: kScalesSharedBytes and the row starts.
__device__ inline void store_scales(const ScalesParams& p, std::byte* memory) {
  const Epoch epoch = load_relaxed(p.state->dispatched);
  const bool broken = p.state->has_stopped();
  const RowStarts starts = fetch_row_starts(p, reinterpret_cast<std::uint32_t*>(memory + kScalesSharedBytes));
  if (broken) return;
  store_scale_share(p, starts, epoch, teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)}),
                    memory + threadIdx.x / 32 * kHeldBytes);
}

}  // namespace ferry::cuda
