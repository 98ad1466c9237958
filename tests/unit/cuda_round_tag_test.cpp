// Words that say which round they belong to.
#include "cuda/round_tag.h"

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

TEST(CountOfRound, GrowsFromRoundToRoundWhateverIsCounted) {
  for (Epoch epoch : {Epoch{2}, Epoch{3}, Epoch{1} << 18, (Epoch{1} << 33) + 7}) {
    for (const std::uint32_t count : {0u, 1u, 8192u, RoundTag::kLargestValue}) {
      const Epoch word = CountOfRound::mark(count, epoch);
      EXPECT_EQ(CountOfRound::count(word), count);
      EXPECT_GE(word, CountOfRound::least(epoch));
      EXPECT_LT(word, CountOfRound::least(epoch + 1)) << "taken for the next round's";
    }
  }
  EXPECT_LT(Epoch{0}, CountOfRound::least(2)) << "as words begin";
}

}  // namespace
}  // namespace ferry::cuda
