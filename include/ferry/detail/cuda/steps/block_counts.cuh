// Counts between routing blocks: how many entries of each expert the share of a block has (I19).
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/state/device_state.h"

namespace ferry::cuda {

inline constexpr int kBlocksAtOnce = 8;

struct BlockCounts {
  bool are_there = false;
  std::uint32_t before = 0;  // of the blocks before this one
  std::uint32_t total = 0;
};

// Loads one expert's counts of up to kBlocksAtOnce blocks, `stride` words apart. `own` is the index of this block among
// them, perhaps none. Blocks count at the same time, so their counts arrive at about the same time. So all missing
// counts are loaded at once.
template <class W>
__device__ BlockCounts await_counts(const PeerLinks& links, const DeviceWord<Epoch>* counts, int stride, int blocks,
                                    int own, Epoch epoch) {
  const RoundTag& tag = links.tag;
  unsigned missing = (1u << min(blocks, kBlocksAtOnce)) - 1u;
  BlockCounts sums;
  const auto look = [&] {
    Epoch words[kBlocksAtOnce];
#pragma unroll
    for (int i = 0; i < kBlocksAtOnce; ++i) words[i] = (missing >> i & 1u) != 0 ? load_relaxed(counts[i * stride]) : 0;
#pragma unroll
    for (int i = 0; i < kBlocksAtOnce; ++i) {
      if (!tag.has_come(words[i], epoch)) continue;
      missing &= ~(1u << i);
      sums.total += tag.value_of_whole(words[i]);
      sums.before += i < own ? tag.value_of_whole(words[i]) : 0;
    }
    return missing == 0;
  };
  const auto seen = [&] {
    return tag.epoch_of_whole(load_relaxed(counts[(__ffs(static_cast<int>(missing)) - 1) * stride]));
  };
  sums.are_there = W(links).wait_for_counts(look, seen, epoch);
  return sums;
}

}  // namespace ferry::cuda
