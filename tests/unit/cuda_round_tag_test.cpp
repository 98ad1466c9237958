// Words that say which round they belong to.
#include "ferry/detail/cuda/state/round_tag.h"

#include <gtest/gtest.h>

namespace ferry::cuda {
namespace {

constexpr std::uint32_t kLargest[] = {0, 1, 2, 255, 256, 8192, 65535, (1u << 30) - 1};

TEST(RoundTag, KeepsTheValueInEveryRound) {
  for (const std::uint32_t largest : kLargest) {
    const RoundTag tag(largest);
    for (Epoch epoch : {Epoch{2}, Epoch{3}, Epoch{1} << 18, (Epoch{1} << 40) + 7}) {
      for (const std::uint32_t value : {0u, largest / 2, largest}) {
        const std::uint32_t word = tag.mark(value, epoch);
        EXPECT_TRUE(tag.is_of(word, epoch));
        EXPECT_EQ(tag.value(word), value);
      }
    }
  }
}

TEST(RoundTag, NeverTakesTheWordOfTwoRoundsBeforeForThisOne) {
  for (const std::uint32_t largest : kLargest) {
    const RoundTag tag(largest);
    EXPECT_FALSE(tag.is_of(0, 2)) << largest;  // as words begin
    EXPECT_FALSE(tag.is_of(0, 3)) << largest;
    for (Epoch epoch = 4; epoch < 300000; ++epoch) {
      ASSERT_FALSE(tag.is_of(tag.mark(0, epoch - 2), epoch)) << largest << ' ' << epoch;
      ASSERT_FALSE(tag.is_of(tag.mark(largest, epoch - 2), epoch)) << largest << ' ' << epoch;
    }
  }
}

TEST(RoundTag, WholeNumbersOnlyGrow) {
  for (const std::uint32_t largest : kLargest) {
    const RoundTag tag(largest);
    EXPECT_FALSE(tag.has_come(0, 2)) << "as words begin";
    for (Epoch epoch : {Epoch{2}, Epoch{3}, Epoch{1} << 18, (Epoch{1} << 33) + 7}) {
      for (const std::uint32_t value : {0u, largest / 2, largest}) {
        const Epoch word = tag.mark_whole(value, epoch);
        EXPECT_EQ(tag.value_of_whole(word), value);
        EXPECT_EQ(tag.epoch_of_whole(word), epoch);
        EXPECT_TRUE(tag.has_come(word, epoch));
        EXPECT_FALSE(tag.has_come(word, epoch + 1)) << "taken for the next round's";
      }
    }
  }
  const RoundTag tag(8192);
  EXPECT_FALSE(tag.has_come(tag.mark_whole(5, (Epoch{1} << 49) - 1), (Epoch{1} << 49) + 1)) << "for thousands of years";
}

}  // namespace
}  // namespace ferry::cuda
