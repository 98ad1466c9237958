#include "ferry/detail/base/divider.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "ferry/detail/layout/expert_split.h"

namespace ferry {
namespace {

TEST(Divider, DividesAsTheProcessorDoes) {
  constexpr int kMost = std::numeric_limits<int>::max();
  std::mt19937 random(3);
  std::uniform_int_distribution<int> any(1, kMost);
  for (int trial = 0; trial < 20000; ++trial) {
    const int divisor = trial < 3000 ? trial + 1 : trial % 3 == 0 ? any(random) : any(random) >> any(random) % 31 | 1;
    const Divider divider(divisor);
    const int number = any(random);
    for (const int value : {0, 1, divisor - 1, divisor, number, number / divisor * divisor, kMost - 1, kMost}) {
      ASSERT_EQ(divider.quotient(value), value / divisor) << value << " / " << divisor;
      ASSERT_EQ(divider.remainder(value), value % divisor) << value << " % " << divisor;
    }
  }
}

TEST(ExpertSplit, IsThatOfTheShape) {
  for (int ranks = 1; ranks <= kMaxRanksPerNode; ++ranks) {
    for (const int experts : {ranks, ranks + 1, 2 * ranks - 1, 256, 257, 8191}) {
      if (experts < ranks) continue;
      const Shape shape{.ranks = ranks, .experts = experts, .top_k = 1, .max_tokens = 1, .hidden = 32};
      const ExpertSplit split(shape);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(split.experts_of(rank).first, first_expert(shape, rank));
        ASSERT_EQ(split.experts_of(rank).count, num_local_experts(shape, rank));
      }
      for (int expert = 0; expert < experts; ++expert) ASSERT_EQ(split.owner_of(expert), owner_of(shape, expert));
    }
  }
}

}  // namespace
}  // namespace ferry
