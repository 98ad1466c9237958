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
  EXPECT_EQ(combine_policy(kHopper, 1, 4, true, true).roles.team_threads, 512);
  EXPECT_EQ(combine_policy(kHopper, 4096, 4 * 4096, true, true).roles.team_threads, 128);
}

TEST(CudaTuning, OneSenderForEachTokenUpToAShareOfTheDevice) {
  EXPECT_EQ(dispatch_policy(kHopper, 0, 0, 1, true, true).roles.senders, 1);
  EXPECT_EQ(dispatch_policy(kHopper, 1, 4, 1, true, true).roles.senders, 1);
  EXPECT_EQ(dispatch_policy(kHopper, 100, 400, 1, true, true).roles.senders, 100);
  EXPECT_EQ(dispatch_policy(kHopper, 4096, 4 * 4096, 8, true, true).roles.senders, kMostSenders);
}

// Every role has a block, and no more blocks wait than the device holds: any number of tokens, any limit.
TEST(CudaTuning, EveryRoleOfADispatchFitsBesideTheOthers) {
  for (int most = 3; most <= 264; ++most) {
    const Resident resident{132, 2, most};
    for (const int tokens : {0, 1, 2, 7, 66, 128, 133, 4096}) {
      for (const int parts : {1, 2, 8}) {
        const DispatchPolicy both = dispatch_policy(resident, tokens, 4 * tokens, parts, true, true);
        EXPECT_LE(both.blocks, most);
        EXPECT_TRUE(both.roles.rankers == 1 || both.roles.rankers == parts);
        EXPECT_GE(both.roles.senders, 1);
        EXPECT_GE(both.blocks - both.roles.rankers - both.roles.senders, 1) << "no block lays arrivals out: " << both;
        const DispatchPolicy send = dispatch_policy(resident, tokens, 4 * tokens, parts, true, false);
        EXPECT_EQ(send.blocks, send.roles.senders + send.roles.rankers);
        EXPECT_LE(send.blocks, most);
        const DispatchPolicy receive = dispatch_policy(resident, tokens, 4 * tokens, parts, false, true);
        EXPECT_GE(receive.blocks, 1);
        EXPECT_LE(receive.blocks, most);
        EXPECT_EQ(receive.roles.rankers + receive.roles.senders, 0);
      }
    }
  }
}

// Some team sends and some team receives, whatever the limit.
TEST(CudaTuning, EveryRoleOfACombineHasATeam) {
  for (int most = 3; most <= 132; ++most) {
    const Resident resident{132, 1, most};
    for (const int tokens : {0, 1, 2, 7, 33, 66, 128, 133, 4096}) {
      for (const bool sends : {true, false}) {
        for (const bool receives : {true, false}) {
          if (!sends && !receives) continue;
          const CombinePolicy policy = combine_policy(resident, tokens, 4 * tokens, sends, receives);
          const int teams = policy.blocks * (kThreads / policy.roles.team_threads);
          EXPECT_GE(policy.blocks, 1);
          EXPECT_LE(policy.blocks, most);
          EXPECT_LE(policy.roles.senders, teams);
          EXPECT_EQ(policy.roles.senders > 0, sends);
          EXPECT_TRUE(!receives || policy.roles.first_receiver < teams) << policy;
        }
      }
    }
  }
}

TEST(CudaTuning, PrintsItself) {
  std::ostringstream text;
  text << DispatchPolicy{264, {8, 66, false, 128, 128}} << '\n' << CombinePolicy{132, {528, 0, 128}};
  EXPECT_EQ(text.str(),
            "264 blocks: 8 rank, 66 send in teams of 128, the others receive in teams of 128\n"
            "132 blocks in teams of 128: 528 send, from the 0th on they receive");
}

}  // namespace
}  // namespace ferry::cuda
