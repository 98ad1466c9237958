// Abort words, and the way from the rank that was named first to the one that is missing.
#include "shared/abort_word.h"

#include <gtest/gtest.h>

#include <map>

namespace ferry {
namespace {

int follow(int named, int rank, int waited_for, const std::map<int, Epoch>& words) {
  return follow_abort_words(named, rank, waited_for, 6, [&](int suspect) {
    const auto found = words.find(suspect);
    return found == words.end() ? Epoch{0} : found->second;
  });
}

TEST(AbortWord, HoldsEpochAndRankAndWhetherItWasTold) {
  const Epoch own = abort_word(1'234'567, false, 4);
  const Epoch told = abort_word(1'234'567, true, 4);
  EXPECT_EQ(own >> 16, 1'234'567u);
  EXPECT_EQ(told >> 16, 1'234'567u);
  EXPECT_EQ(rank_waited_for(own), 4);
  EXPECT_EQ(rank_waited_for(told), 4);
  EXPECT_TRUE(ends_waits(own));
  EXPECT_FALSE(ends_waits(told));
  EXPECT_FALSE(ends_waits(0));
  EXPECT_EQ(rank_waited_for(abort_word(2, true, 2047)), 2047);
}

TEST(FollowAbortWords, EndsAtTheRankThatSaysNothing) {
  EXPECT_EQ(follow(3, 0, 3, {}), 3);
  // 0 was told of 1, which waited for 2, which waited for 3; 3 is gone.
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 2)}, {2, abort_word(5, true, 3)}}), 3);
}

TEST(FollowAbortWords, GoesOnFromTheRankItself) {
  // 1 named 0, which itself waited for 4.
  EXPECT_EQ(follow(0, 0, 4, {{1, abort_word(5, false, 0)}}), 4);
}

TEST(FollowAbortWords, BelievesTheFirstWhereTheyWaitForEachOther) {
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 2)}, {2, abort_word(5, true, 1)}}), 1);
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 0)}}), 1);
}

TEST(FollowAbortWords, TakesNoRankOutOfRange) { EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 99)}}), 1); }

}  // namespace
}  // namespace ferry
