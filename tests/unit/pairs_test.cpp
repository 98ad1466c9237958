#include "support/pairs.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace ferry::test {
namespace {

// Of formats, sums and seeds each two meet, and few of all three.
TEST(Pairs, AreAllThere) {
  constexpr int kFormats = 10, kSums = 3, kSeeds = 3;
  std::set<std::pair<int, int>> formats_sums, formats_seeds, sums_seeds;
  int tried = 0;
  for (int format = 0; format < kFormats; ++format)
    for (int sums = 0; sums < kSums; ++sums)
      for (int seed = 0; seed < kSeeds; ++seed) {
        if (!meet(format, sums, seed, kSeeds)) continue;
        ++tried;
        formats_sums.emplace(format, sums);
        formats_seeds.emplace(format, seed);
        sums_seeds.emplace(sums, seed);
      }
  EXPECT_EQ(formats_sums.size(), 30u);
  EXPECT_EQ(formats_seeds.size(), 30u);
  EXPECT_EQ(sums_seeds.size(), 9u);
  EXPECT_EQ(tried, wants_all() ? 90 : 30);
}

}  // namespace
}  // namespace ferry::test
