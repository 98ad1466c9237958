// TableParts: the parts that a routing table comes in. How many tokens a part has follows from how many the table has,
// which receivers know from its source's number of tokens (I19). So few tokens come in as many parts whatever
// max_tokens is.
#pragma once

#include <bit>

#include "ferry/detail/layout/heap_map.h"
#include "ferry/portable.h"

namespace ferry::cuda {

class TableParts {
 public:
  TableParts() = default;
  // `has_remote_ranks`: some ranks get the table by puts, and each part of it costs a fence. So the parts are fewer.
  explicit constexpr TableParts(int top_k, bool has_remote_ranks)
      : log2_of_most_(has_remote_ranks ? kLog2OfMostForRemote : kLog2OfMost) {
    const int least = has_remote_ranks ? kLeastEntriesForRemote : kLeastEntries;
    while ((1 << least_log2_) * top_k < least) ++least_log2_;
  }

  // 5 at least.
  FERRY_HD int log2_part_tokens(int num_tokens) const {
    const unsigned above = static_cast<unsigned>(num_tokens == 0 ? 0 : num_tokens - 1) >> log2_of_most_;
#if defined(__CUDA_ARCH__)
    const int needed = 32 - __clz(static_cast<int>(above));
#else
    const int needed = static_cast<int>(std::bit_width(above));
#endif
    return needed > least_log2_ ? needed : least_log2_;
  }
  // Of a table of so many tokens, the part that has this one.
  FERRY_HD int part_of(int token, int num_tokens) const { return token >> log2_part_tokens(num_tokens); }
  // One at least.
  FERRY_HD int count(int num_tokens) const { return num_tokens == 0 ? 1 : part_of(num_tokens - 1, num_tokens) + 1; }

 private:
  static constexpr int kLeastEntries = 256;  // fewer take a block no less time
  static constexpr int kLeastEntriesForRemote = 1024;
  static constexpr int kLog2OfMost = 5;
  static constexpr int kLog2OfMostForRemote = 3;
  static_assert(HeapMap::kMostTableParts == 1 << kLog2OfMost);

  int least_log2_ = 5;  // the bits of 32 tokens fill a word
  int log2_of_most_ = 0;
};

}  // namespace ferry::cuda
