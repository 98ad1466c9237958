// What a block that ranks has to do, and what it keeps in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/policy/block_roles.h"

namespace ferry::cuda {

// What a block keeps in shared memory: [words][experts] bits, [experts] entries before the chunk, [experts] of the
// share or, later, of all, and what is wrong with ids of the chunk: kTwins, kBadIds.
struct RankingMemory {
  BlockWord<std::uint32_t>* bits;
  BlockWord<std::uint32_t>* before;
  BlockWord<std::uint32_t>* total;
  BlockWord<std::uint32_t>* wrong;

  __device__ RankingMemory(std::byte* memory, int words, int experts)
      : bits(reinterpret_cast<BlockWord<std::uint32_t>*>(memory)),
        before(bits + words * experts),
        total(before + experts),
        wrong(total + experts) {}
};

// Tokens, or entries, [first, end).
struct IndexRange {
  int first;
  int end;
};

// Threads of a block that rank: each of a few has more to do, but many hinder each other in what all do alike.
__device__ inline int routing_threads(int entries, int experts) {
  constexpr int kFew = 256;
  return entries <= kFew && experts <= 4 * kFew ? kFew : kThreads;
}

// What a block does: entries of its share of the table, counts and header, or both.
struct RoutingShare {
  int block;
  int blocks;  // that have entries
  int first_part;
  int parts;  // 0: it has no entries
  int log2_part_tokens;
  bool stores_counts;
  __device__ bool stores_entries() const { return parts != 0; }
};
__device__ inline IndexRange tokens_of(const RoutingShare& share, int num_tokens) {
  const int first = share.first_part << share.log2_part_tokens;
  return {min(num_tokens, first), min(num_tokens, first + (share.parts << share.log2_part_tokens))};
}

}  // namespace ferry::cuda
