// TableParts: how a routing table is cut into parts. The tokens of a part follow from the tokens of the table, and
// receivers know that number of each source (I19). So a small round has as many parts whatever max_tokens is.
#pragma once

#include <bit>

#include "ferry/detail/layout/heap_map.h"
#include "ferry/formats/portable.h"

namespace ferry::cuda {

class TableParts {
 public:
  TableParts() = default;
  // `has_remote_ranks`: remote ranks get the table by puts, and each part costs a fence, so there are fewer parts.
  explicit constexpr TableParts(int top_k, bool has_remote_ranks)
      : log2_of_most_(has_remote_ranks ? kLog2OfMostForRemote : kLog2OfMost) {
    const int least = has_remote_ranks ? kLeastEntriesForRemote : kLeastEntries;
    while ((1 << least_log2_) * top_k < least) ++least_log2_;
  }

  // At least 5.
  FERRY_HD int log2_part_tokens(int num_tokens) const {
    const unsigned above = static_cast<unsigned>(num_tokens == 0 ? 0 : num_tokens - 1) >> log2_of_most_;
#if defined(__CUDA_ARCH__)
    const int needed = 32 - __clz(static_cast<int>(above));
#else
    const int needed = static_cast<int>(std::bit_width(above));
#endif
    return needed > least_log2_ ? needed : least_log2_;
  }
  // The part of this token, in a table of `num_tokens` tokens.
  FERRY_HD int part_of(int token, int num_tokens) const { return token >> log2_part_tokens(num_tokens); }
  // At least one.
  FERRY_HD int count(int num_tokens) const { return num_tokens == 0 ? 1 : part_of(num_tokens - 1, num_tokens) + 1; }

 private:
  static constexpr int kLeastEntries = 256;  // a block takes no less time for fewer
  static constexpr int kLeastEntriesForRemote = 1024;
  static constexpr int kLog2OfMost = 5;
  static constexpr int kLog2OfMostForRemote = 3;
  static_assert(HeapMap::kMostTableParts == 1 << kLog2OfMost);

  int least_log2_ = 5;  // 32 tokens: their bits fill a word
  int log2_of_most_ = 0;
};

}  // namespace ferry::cuda
