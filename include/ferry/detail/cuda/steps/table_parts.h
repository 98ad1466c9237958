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
  // `all_direct`: no table goes by puts, which cost a fence for each part.
  explicit constexpr TableParts(int top_k, bool all_direct)
      : log2_of_most_(all_direct ? kLog2OfMost : kLog2OfMostForFar) {
    const int least = all_direct ? kLeastEntries : kLeastEntriesForFar;
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
  static constexpr int kLeastEntriesForFar = 1024;
  static constexpr int kLog2OfMost = 5;
  static constexpr int kLog2OfMostForFar = 3;
  static_assert(HeapMap::kMostTableParts == 1 << kLog2OfMost);

  int least_log2_ = 5;  // the bits of 32 tokens fill a word
  int log2_of_most_ = 0;
};

}  // namespace ferry::cuda
