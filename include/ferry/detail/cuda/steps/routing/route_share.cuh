// What a routing block works with: its share of the table, its shared memory, the counts of the other routing blocks
// (I19), and the record of bad ids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/state/block_roles.h"
#include "ferry/detail/cuda/state/kernel_params.h"

namespace ferry::cuda {

// Shared memory of a routing block: [words][experts] bits; [experts] entries before the chunk; [experts] entries of the
// share, later of all shares; and the kinds of bad ids in the chunk: kDuplicates, kBadIds.
struct RoutingMemory {
  BlockWord<std::uint32_t>* bits;
  BlockWord<std::uint32_t>* before;
  BlockWord<std::uint32_t>* total;
  BlockWord<std::uint32_t>* wrong;

  __device__ RoutingMemory(std::byte* memory, int words, int experts)
      : bits(reinterpret_cast<BlockWord<std::uint32_t>*>(memory)),
        before(bits + words * experts),
        total(before + experts),
        wrong(total + experts) {}
};

// A range of tokens or entries, [first, end).
struct IndexRange {
  int first;
  int end;
};

// Threads of a routing block that build the table. With few entries fewer threads are faster: each has more work, but
// what every thread repeats costs less.
__device__ inline int routing_threads(int entries, int experts) {
  constexpr int kFew = 256;
  return entries <= kFew && experts <= 4 * kFew ? kFew : kThreads;
}

// What a block sends: the entries of its share, counts and header, or both.
struct RoutingShare {
  int block;
  int blocks;  // with entries
  int first_part;
  int parts;  // 0: this block has no entries
  int log2_part_tokens;
  bool stores_counts;
  __device__ bool stores_entries() const { return parts != 0; }
};
__device__ inline IndexRange tokens_of(const RoutingShare& share, int num_tokens) {
  const int first = share.first_part << share.log2_part_tokens;
  return {min(num_tokens, first), min(num_tokens, first + (share.parts << share.log2_part_tokens))};
}

inline constexpr int kBlocksAtOnce = 8;

// The entries of one expert in the shares of several blocks (I19).
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

// Records one bad id of a round: an id out of range, or a duplicate within a token. The counter of the next round is
// cleared meanwhile (round_clock.cuh).
__device__ __noinline__ inline void report_bad_id(const RoutingArgs& routing, Epoch epoch, int token, int k,
                                                  std::int64_t id) {
  if (fetch_add_relaxed(routing.state->bad_ids[epoch & 1], 1u) != 0) return;
  routing.record->bad_token = token;
  routing.record->bad_k = k;
  routing.record->bad_id = id;
}

// One thread reports to the host after it has seen the words of all parts of this rank's own table (I2).
__device__ inline void tell_of_bad_ids(const RoutingArgs& routing, Epoch epoch) {
  const std::uint32_t bad = load_relaxed(routing.state->bad_ids[epoch & 1]);
  if (bad == 0) return;
  routing.record->num_bad = bad;
  store_release(routing.record->has_bad_id, 1u);
}

}  // namespace ferry::cuda
