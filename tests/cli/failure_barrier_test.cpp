// FailureBarrier: a rank that fails between two phases releases all others, whoever learns of it first.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tool/layer/rank/layer_run.h"

namespace ferry::app {
namespace {

constexpr int kRanks = 3;
constexpr int kTimes = 3000;

// Rank 0 fails right after the first phase, when the others may not have looked yet. No rank waits for ever.
TEST(FailureBarriers, ReleaseEveryRank) {
  for (int time = 0; time < kTimes; ++time) {
    FailureBarrier barrier(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([&barrier, rank] {
        if (!barrier.all_well()) return;
        if (rank == 0) return barrier.fail();
        EXPECT_FALSE(barrier.all_well());
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

}  // namespace
}  // namespace ferry::app
