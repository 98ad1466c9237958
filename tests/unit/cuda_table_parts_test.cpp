// The parts of a routing table on GPUs: plain arithmetic, so tested without a GPU.
#include <gtest/gtest.h>

#include "ferry/detail/cuda/state/table_parts.h"

namespace ferry::cuda {
namespace {

constexpr int kMost = static_cast<int>(HeapMap::kMostTableParts);

TEST(TableParts, AreAsManyAsTheTableIsLarge) {
  const TableParts parts(8, false);
  EXPECT_EQ(parts.count(0), 1);
  EXPECT_EQ(parts.count(32), 1);
  EXPECT_EQ(parts.count(33), 2);
  EXPECT_EQ(parts.count(32 * kMost), kMost);
  EXPECT_EQ(parts.count(32 * kMost + 1), kMost / 2 + 1) << "of 64 tokens";
  EXPECT_EQ(TableParts(1, false).count(257), 2) << "256 entries at least";
  EXPECT_EQ(TableParts(3, false).log2_part_tokens(1), 7) << "128 tokens are the fewest that have as many";
}

TEST(TableParts, ThatGoByPutsAreFewer) {
  EXPECT_EQ(TableParts(8, true).count(256), 2) << "1024 entries at least";
  EXPECT_EQ(TableParts(8, true).count(1024), 8);
  EXPECT_EQ(TableParts(8, true).count(1025), 5);
}

TEST(TableParts, HoldEveryToken) {
  for (const bool has_remote_ranks : {false, true})
    for (const int top_k : {1, 2, 7, 8, 22, 32}) {
      const TableParts parts(top_k, has_remote_ranks);
      for (int tokens = 1; tokens <= 40000; tokens += tokens < 3000 ? 1 : 997) {
        SCOPED_TRACE(testing::Message() << tokens << " tokens, top-" << top_k
                                        << (has_remote_ranks ? ", some remote" : ""));
        const int log2 = parts.log2_part_tokens(tokens);
        ASSERT_GE(log2, 5) << "parts begin where words of bits do";
        ASSERT_EQ(parts.count(tokens), (tokens + (1 << log2) - 1) / (1 << log2))
            << "the last token is in the last part";
        ASSERT_EQ(parts.part_of((1 << log2) - 1, tokens), 0);
        ASSERT_EQ(parts.part_of(1 << log2, tokens), 1);
        ASSERT_LE(parts.count(tokens), has_remote_ranks ? 8 : kMost);
      }
    }
}

}  // namespace
}  // namespace ferry::cuda
