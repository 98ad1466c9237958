// A routing block: its share of the table, and its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/state/block_roles.h"

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

}  // namespace ferry::cuda
