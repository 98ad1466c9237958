// The launch policies of a world of one rank, which has no links to fill or to crowd. What is measured on one H200.
#include <gtest/gtest.h>

#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"

namespace ferry::cuda {
namespace {

Problem problem_of(int tokens, int top_k, int hidden = 7168, int message_bytes = 7392, int buffer_teams = 8) {
  return {.ranks = 1,
          .num_tokens = tokens,
          .arrivals = tokens,
          .parts = 32,
          .buffer_teams = buffer_teams,
          .hidden = hidden,
          .message_bytes = message_bytes,
          .groups = 128,
          .top_k = top_k,
          .has_pipeline = true};
}

TEST(CudaOneRank, OfManyTokensAsManyBlocksSendAsTheirPartOfTheTime) {
  const auto roles = [](const Problem& problem, int most_blocks = 264) {
    return dispatch_policy({132, 2, most_blocks}, problem).roles;
  };
  const DispatchRoles fp8 = roles(problem_of(8192, 4));
  EXPECT_EQ(fp8.senders, 132);
  EXPECT_EQ(fp8.send_team_threads, 128);
  EXPECT_FALSE(fp8.stores);
  EXPECT_EQ(roles(problem_of(8192, 2, 4096, 4224)).senders, 132) << "no more than there are multiprocessors";
  EXPECT_EQ(roles(problem_of(8192, 2, 4096, 4224)).send_team_threads, 64) << "more of the smaller messages";
  EXPECT_EQ(roles(problem_of(8192, 8, 7168, 4032, 16)).senders, 122);
  EXPECT_EQ(roles(problem_of(2047, 4)).senders, kMostSendersOfMany);
  EXPECT_EQ(roles(problem_of(512, 4)).send_team_threads, 64);
  EXPECT_EQ(roles(problem_of(8192, 8)).senders, kMostSendersOfMany) << "rows take most of the time";
  EXPECT_EQ(roles(problem_of(8192, 8)).send_team_threads, 128);
  EXPECT_EQ(roles(problem_of(8192, 4), 24).senders, 14) << "few blocks share the time as those of other worlds do";
}

TEST(CudaOneRank, ManyResultsOfSeveralRowsAreSentAndSummedByDifferentBlocks) {
  const auto policy = [](int tokens, int top_k, int most_blocks = 132, int hidden = 7168) {
    return combine_policy({132, 1, most_blocks}, problem_of(tokens, top_k, hidden));
  };
  EXPECT_EQ(policy(8192, 4), (CombinePolicy{132, {87, 87, 128, 64, true, false, true, true}}));
  EXPECT_EQ(policy(8192, 8).roles, policy(8192, 4).roles);
  EXPECT_EQ(policy(1024, 4).roles.senders, 132) << "few results: blocks do both";
  EXPECT_EQ(policy(2048, 4, 132, 2880).roles.senders, 132) << "few bytes of them";
  EXPECT_EQ(policy(8192, 4, 132, 2880).roles.senders, 54);
  EXPECT_EQ(policy(1024, 4, 24).roles.senders, 17) << "few blocks";
  EXPECT_EQ(policy(8192, 4, 48).roles.senders, 34) << "as many as their part of the time";
  EXPECT_EQ(policy(8192, 3).roles.senders, 132) << "few rows of a result: registers do";
  EXPECT_TRUE(policy(8192, 3, 24).roles.pipelined) << "few blocks";
}

// One of 8 ranks that have the experts: a token has one row here.
TEST(CudaOneRank, WithoutAnExchangeATokenHasFewRowsHere) {
  Problem problem = problem_of(8192, 8);
  problem.local_part = 1.0 / 8;
  EXPECT_EQ(dispatch_policy({132, 2, 264}, problem).roles.senders, 132);
  EXPECT_FALSE(combine_policy({132, 1, 132}, problem).roles.pipelined);
  EXPECT_EQ(combine_policy({132, 1, 24}, problem).roles.senders, 12);
}

}  // namespace
}  // namespace ferry::cuda
