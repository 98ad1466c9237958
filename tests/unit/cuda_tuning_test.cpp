// The launch policies of the GPU kernels: plain arithmetic, so tested without a GPU.
#include <gtest/gtest.h>

#include <sstream>

#include "cuda/tuning.h"

namespace ferry::cuda {
namespace {

constexpr Resident kHopper{132, 2, 264};

TEST(CudaTuning, FewTokensGetLargeTeams) {
  EXPECT_EQ(team_threads_for(264, 264), 512);
  EXPECT_EQ(team_threads_for(264, 265), 256);
  EXPECT_EQ(team_threads_for(264, 529), 128);
  EXPECT_EQ(combine_policy(kHopper, 1, 4).team_threads, 512);
  EXPECT_EQ(combine_policy(kHopper, 4096, 4).team_threads, 128);
}

TEST(CudaTuning, OneSenderForEachTokenUpToAShareOfTheDevice) {
  EXPECT_EQ(dispatch_policy(kHopper, 0, 4, true, true).senders, 1);
  EXPECT_EQ(dispatch_policy(kHopper, 1, 4, true, true).senders, 1);
  EXPECT_EQ(dispatch_policy(kHopper, 100, 4, true, true).senders, 100);
  EXPECT_EQ(dispatch_policy(kHopper, 4096, 4, true, true).senders, kMostSenders);
}

// Every role has a block, and no more blocks wait than the device holds: any number of tokens, any limit.
TEST(CudaTuning, EveryRoleFitsBesideTheOthers) {
  for (int most = 3; most <= 264; ++most) {
    const Resident resident{132, 2, most};
    for (const int tokens : {0, 1, 2, 7, 66, 128, 133, 4096}) {
      const LaunchPolicy both = dispatch_policy(resident, tokens, 4, true, true);
      EXPECT_LE(both.blocks, most);
      EXPECT_GE(both.senders, 1);
      EXPECT_GE(both.blocks - 1 - both.senders, 1) << "no block lays arrivals out: " << both;
      const LaunchPolicy send = dispatch_policy(resident, tokens, 4, true, false);
      EXPECT_EQ(send.blocks, send.senders + 1);
      EXPECT_LE(send.blocks, most);
      EXPECT_LE(dispatch_policy(resident, tokens, 4, false, true).blocks, most);
      EXPECT_LE(combine_policy(resident, tokens, 4).blocks, most);
    }
  }
}

TEST(CudaTuning, PrintsItself) {
  std::ostringstream text;
  text << LaunchPolicy{264, 512, 128, 66};
  EXPECT_EQ(text.str(), "264 blocks of 512 threads in teams of 128, 66 of them sending");
}

}  // namespace
}  // namespace ferry::cuda
