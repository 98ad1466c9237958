// The rules that launch policies are made of: plain arithmetic, so tested without a GPU. What H200s get is in
// cuda_policy_table_test.cpp, what holds for any call in cuda_policy_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"
#include "cuda/policy/scales_policy.h"

namespace ferry::cuda {
namespace {

constexpr int kMultiprocessors = 132;

DeviceLimits limits_of(int blocks_per_multiprocessor, int max_blocks = 1 << 20) {
  return {.multiprocessors = kMultiprocessors,
          .blocks_per_multiprocessor = blocks_per_multiprocessor,
          .max_blocks = max_blocks};
}

Problem problem_of(int tokens, int ranks = 4) {
  return {.ranks = ranks,
          .num_tokens = tokens,
          .arrivals = std::min(ranks, 8) * tokens,
          .table_parts = std::clamp(tokens / 32, 1, 32),
          .buffer_teams = 8,
          .hidden = 7168,
          .message_bytes = 7392,
          .groups = 64,
          .top_k = 8,
          .has_pipeline = true};
}

// ---- teams

TEST(CudaTeamSizes, FewTokensGetLargeTeams) {
  EXPECT_EQ(team_threads_for(264, 264), kThreads);
  EXPECT_EQ(team_threads_for(264, 265), kThreads / 2);
  EXPECT_EQ(team_threads_for(264, 529), kThreads / 4);
  EXPECT_EQ(team_threads_for(264, 100000), kLeastTeamThreads);
  EXPECT_EQ(team_threads_for(264, 100000, 8), kThreads / 8) << "a sending team has a buffer";
}

TEST(CudaTeamSizes, FewTokensGetTeamsOfSeveralBlocks) {
  EXPECT_EQ(warpwise_team_threads_for(32, 4), kMaxTeamBlocks * kThreads);
  EXPECT_EQ(warpwise_team_threads_for(7, 4), kThreads);
  EXPECT_EQ(warpwise_team_threads_for(132, 264), kThreads / 2);
  EXPECT_EQ(warpwise_team_threads_for(128, 64), kMaxTeamBlocks * kThreads);
  EXPECT_EQ(warpwise_team_threads_for(128, 64, 32), kThreads) << "some blocks are left for padding";
}

TEST(CudaTeamSizes, ASendingTeamHasAThreadForEachDestination) {
  EXPECT_EQ(teams_with_threads(1), kMostTeams);
  EXPECT_EQ(teams_with_threads(32), 16);
  EXPECT_EQ(teams_with_threads(33), 8) << "top-32, and the own rank";
}

TEST(CudaTeamSizes, TeamsServeAllRanksInTurn) {
  EXPECT_EQ(teams_serving_all_ranks(132, 64, 4, 100000), 1055);
  EXPECT_EQ(teams_serving_all_ranks(132, 64, 6, 100000), 1055);
  EXPECT_EQ(teams_serving_all_ranks(3, 512, 3, 100), 2);
  EXPECT_EQ(teams_serving_all_ranks(1, 512, 4, 100), 1);
  EXPECT_EQ(teams_serving_all_ranks(132, 64, 4, 1056), 1056) << "each has one token: none may have two";
  EXPECT_EQ(teams_serving_all_ranks(33, 2 * kThreads, 4, 4), 16);
}

// ---- blocks

TEST(CudaPolicyRules, ExchangesAtTheSameTimeHaveAMultiprocessorForEachBlock) {
  EXPECT_EQ(max_resident_blocks(kMultiprocessors, 2, 1), 2 * kMultiprocessors);
  // Two blocks may lie on two multiprocessors, so no more blocks than multiprocessors leave any free.
  EXPECT_EQ(max_resident_blocks(kMultiprocessors, 2, 1, 32), kMultiprocessors - 32);
  EXPECT_EQ(max_resident_blocks(kMultiprocessors, 2, 3, 32), (kMultiprocessors - 32) / 3);
  EXPECT_EQ(max_resident_blocks(kMultiprocessors, 2, 1, kMultiprocessors + 1), 0);
  for (const int exchanges : {2, 3, 8})
    for (const int per_multiprocessor : {1, 2})
      EXPECT_LE(exchanges * max_resident_blocks(kMultiprocessors, per_multiprocessor, exchanges), kMultiprocessors);
  for (const bool exclusive : {false, true})
    for (const int tokens : {1, 150, 4096}) {
      DeviceLimits limits = limits_of(1, 66);
      limits.is_exclusive = exclusive;
      EXPECT_EQ(dispatch_policy(limits, problem_of(tokens)).pdl, exclusive);
      EXPECT_EQ(combine_policy(limits, problem_of(tokens)).pdl, exclusive);
    }
}

TEST(CudaPolicyRules, EachHalfOfAThreadBlockIsALogicalBlockAndSendsOrRoutes) {
  for (int thread_blocks = 1; thread_blocks <= 66; ++thread_blocks)
    for (int routing_blocks = 0; routing_blocks <= std::min(thread_blocks, 9); ++routing_blocks) {
      std::set<int> indices;
      for (int block = 0; block < thread_blocks; ++block)
        for (const int in_cta : {0, 1}) {
          const LogicalBlock logical = logical_block_of(block, in_cta, thread_blocks, routing_blocks);
          EXPECT_EQ(logical.in_cta, in_cta);
          EXPECT_EQ(logical.count, 2 * thread_blocks);
          EXPECT_EQ(in_cta == 0, logical.index >= routing_blocks && logical.index < routing_blocks + thread_blocks);
          indices.insert(logical.index);
        }
      EXPECT_EQ(static_cast<int>(indices.size()), 2 * thread_blocks);
      EXPECT_EQ(*indices.begin(), 0);
      EXPECT_EQ(*indices.rbegin(), 2 * thread_blocks - 1);
    }
}

TEST(CudaPolicyRules, FewBlocksArePairedWhereTheyCanBe) {
  const auto pairs = [](int max_blocks, bool can_pair_blocks = true) {
    Problem problem = problem_of(4096, 2);
    problem.can_pair_blocks = can_pair_blocks;
    return dispatch_policy(limits_of(2, max_blocks), problem).blocks_per_cta == 2;
  };
  EXPECT_TRUE(pairs(24));
  EXPECT_FALSE(pairs(24, false));
  EXPECT_TRUE(pairs(kMultiprocessors / 2));
  EXPECT_FALSE(pairs(kMultiprocessors / 2 + 1)) << "not few";
  EXPECT_TRUE(pairs(kMinPairedCtas));
  EXPECT_FALSE(pairs(kMinPairedCtas - 1)) << "too few for all roles";
}

// ---- regimes

TEST(CudaPolicyRules, ADispatchFallsIntoARegime) {
  const auto regime = [](const Problem& problem, int max_blocks = 264) {
    return dispatch_regime(limits_of(2, max_blocks), problem);
  };
  EXPECT_EQ(regime(problem_of(kMaxTokensOfOneSenderEach)), Regime::few_tokens);
  EXPECT_EQ(regime(problem_of(kMaxTokensOfOneSenderEach + 1)), Regime::some_tokens);
  EXPECT_EQ(regime(problem_of(4096)), Regime::many_tokens);
  EXPECT_EQ(regime(problem_of(4096), 66), Regime::few_blocks);
  EXPECT_EQ(regime(problem_of(4096, 1)), Regime::one_rank);
  Problem problem = problem_of(4096);
  problem.has_remote_ranks = true;
  EXPECT_EQ(regime(problem), Regime::remote);
  problem.sends = false;
  EXPECT_EQ(regime(problem), Regime::receive_only);
}

TEST(CudaPolicyRules, ACombineFallsIntoARegime) {
  const auto regime = [](const Problem& problem, int max_blocks = kMultiprocessors) {
    return combine_regime(limits_of(1, max_blocks), problem);
  };
  EXPECT_EQ(regime(problem_of(20)), Regime::few_tokens);
  EXPECT_EQ(regime(problem_of(kMinResultsPerBlock * kMultiprocessors / 4 - 1)), Regime::some_tokens);
  EXPECT_EQ(regime(problem_of(kMinResultsPerBlock * kMultiprocessors / 4)), Regime::many_tokens);
  EXPECT_EQ(regime(problem_of(4096), 24), Regime::few_blocks);
  EXPECT_EQ(regime(problem_of(8192, 1)), Regime::one_rank);
  EXPECT_EQ(regime(problem_of(512, 1)), Regime::some_tokens) << "few bytes";
  Problem problem = problem_of(4096);
  problem.has_remote_ranks = true;
  EXPECT_EQ(regime(problem), Regime::remote);
  problem = problem_of(4096);
  problem.receives = false;
  EXPECT_EQ(regime(problem), Regime::some_tokens) << "no roles to split";
}

// ---- details of a dispatch

TEST(CudaPolicyRules, SmallMessagesHaveMoreSenders) {
  Problem problem = problem_of(512);
  problem.has_remote_ranks = true;  // bulk copies
  problem.message_bytes = problem.hidden * 2 / 3 + 1;
  EXPECT_EQ(dispatch_policy(limits_of(2), problem).roles.senders, kSendersOfMany);
  problem.message_bytes = problem.hidden * 2 / 3 - 1;
  EXPECT_EQ(dispatch_policy(limits_of(2), problem).roles.senders, 2 * kSenders);
}

TEST(CudaPolicyRules, MessagesAreStoredWhereTeamsFillTheLinksAndHaveMoreThanOne) {
  const auto senders = [](int ranks, int message_bytes, int tokens, int room = 132) {
    Problem problem = problem_of(tokens, ranks);
    problem.message_bytes = message_bytes;
    return storing_senders(problem, room).blocks;
  };
  EXPECT_GT(senders(4, 7392, 512), 0);
  EXPECT_EQ(senders(4, 7392, 256), 0) << "a team has one message at most";
  EXPECT_EQ(senders(4, 7392, 4096, kMinStoringSenders - 1), 0) << "no room";
  EXPECT_GT(senders(4, 7392, 4096), senders(4, 14336, 4096)) << "larger messages, fewer of them";
  EXPECT_GT(senders(4, 7392, 4096), senders(8, 7392, 4096)) << "a token goes to more ranks";
  EXPECT_EQ(senders(8, 14336, 4096), 0) << "too few to make so many messages";
  EXPECT_EQ(senders(1, 7392, 4096), 0) << "no links to fill";
}

TEST(CudaPolicyRules, AFewEntriesAreCountedByABlockOfItsOwn) {
  EXPECT_TRUE(one_block_counts_all(256, 8, 8));
  EXPECT_FALSE(one_block_counts_all(257, 8, 64)) << "too many entries";
  EXPECT_FALSE(one_block_counts_all(33, 1, 1)) << "their bits do not fit";
  Problem problem = problem_of(32);
  const DispatchRoles together = dispatch_policy(limits_of(2), problem).roles;
  EXPECT_FALSE(together.counts_apart);
  problem.counts_all = true;
  const DispatchRoles apart = dispatch_policy(limits_of(2), problem).roles;
  EXPECT_TRUE(apart.counts_apart);
  EXPECT_EQ(apart.routing_blocks, together.routing_blocks + 1);
  EXPECT_EQ(apart.table_blocks(), together.table_blocks());
  EXPECT_EQ(apart.senders, together.senders);
  EXPECT_FALSE(dispatch_policy(limits_of(2, 24), problem).roles.counts_apart) << "few blocks";
  problem.has_remote_ranks = true;
  EXPECT_FALSE(dispatch_policy(limits_of(2), problem).roles.counts_apart) << "one fence for counts and entries";
}

TEST(CudaPolicyRules, FewTokensHaveBlocksForThePaddingOfTheirGroups) {
  const auto receivers = [](int tokens, int groups) {
    Problem problem = problem_of(tokens);
    problem.groups = groups;
    const DispatchPolicy policy = dispatch_policy(limits_of(2), problem);
    return policy.blocks - policy.roles.routing_blocks - policy.roles.senders;
  };
  EXPECT_EQ(receivers(1, 64), kMinReceivers);
  EXPECT_EQ(receivers(4, 64), 4 * 4 + 4 * 8) << "no more than there are rows";
  EXPECT_EQ(receivers(8, 2), 4 * 8 + 2) << "or groups";
  EXPECT_EQ(receivers(20, 1000), 4 * 20 + kMaxPaddingBlocks);
}

// At hidden 7168, top-8, FP8 has 56 words of scales for each row and messages of 7392 bytes, NVFP4 112 and 4032.
TEST(CudaPolicyRules, ManyWordsOfScalesAreStoredLast) {
  const auto last = [](int ranks, int tokens, int words, int message_bytes, int max_blocks = 264) {
    Problem problem = problem_of(tokens, ranks);
    problem.scale_words = words;
    problem.message_bytes = message_bytes;
    const DeviceLimits limits = limits_of(2, max_blocks);
    return stores_scales_last(limits, problem, dispatch_policy(limits, problem).thread_blocks());
  };
  EXPECT_TRUE(last(2, 4096, 56, 7392));
  EXPECT_FALSE(last(2, 512, 56, 7392)) << "the kernel takes longer than the stores";
  EXPECT_FALSE(last(2, 4096, 0, 7392)) << "scales of a row lie together";
  EXPECT_FALSE(last(4, 8192, 56, 7392)) << "the links take longer than the stores";
  EXPECT_TRUE(last(4, 4096, 112, 4032));
  EXPECT_TRUE(last(4, 4096, 56, 7392, 24)) << "few blocks take longer than the links";
  EXPECT_FALSE(last(4, 128, 56, 7392, 24));
  Problem problem = problem_of(4096, 2);
  problem.scale_words = 56;
  EXPECT_TRUE(stores_scales_last(limits_of(2), problem, 1));
  for (const RowOrder order : {RowOrder::by_source, RowOrder::padded, RowOrder::in_place}) {
    problem.order = order;
    EXPECT_FALSE(stores_scales_last(limits_of(2), problem, 1)) << "the kernel knows rows by_expert";
  }
  problem.order = RowOrder::by_expert;
  problem.receives = false;
  EXPECT_FALSE(stores_scales_last(limits_of(2), problem, 1)) << "nothing is laid out";
}

TEST(CudaPolicyRules, EachOrderWritesItsRows) {
  Problem problem = problem_of(64, 2);  // top-8: nearly every token goes to both ranks
  EXPECT_DOUBLE_EQ(written_rows(problem), 8);
  EXPECT_DOUBLE_EQ(combined_rows(problem), 8);
  problem.order = RowOrder::padded;
  EXPECT_DOUBLE_EQ(written_rows(problem), 8);
  problem.order = RowOrder::by_source;
  EXPECT_NEAR(written_rows(problem), 2, 0.01) << "one for each rank";
  EXPECT_NEAR(combined_rows(problem), 2, 0.01);
  problem.order = RowOrder::in_place;
  EXPECT_DOUBLE_EQ(written_rows(problem), 0) << "they lie where they came";
  EXPECT_DOUBLE_EQ(combined_rows(problem), 8);
}

// ---- details of a combine

TEST(CudaPolicyRules, ShortRowsAreSummedBySmallerTeams) {
  const auto threads = [](int hidden, int tokens) {
    Problem problem = problem_of(tokens);
    problem.hidden = hidden;
    return min_sum_threads(problem, 44);
  };
  EXPECT_EQ(threads(7168, 512), kMinSumThreads);
  EXPECT_EQ(threads(4096, 44 * kMostTeams), kLeastTeamThreads) << "a token for each warp";
  EXPECT_EQ(threads(4096, 44 * kMostTeams + 1), kMinSumThreads);
  EXPECT_EQ(threads(2880, 44 * kMostTeams + 1), kMinSumThreads / 2);
  EXPECT_EQ(threads(4128, 1), kMinSumThreads);
}

TEST(CudaPolicyRules, RowsComeThroughSharedMemoryWhereBlocksAreFewOrResultsAreOfManyRows) {
  const auto pipelined = [](int ranks, int top_k, int max_blocks, bool has_pipeline = true, bool exact = false) {
    Problem problem = problem_of(4096, ranks);
    problem.exact = exact;
    problem.top_k = top_k;
    problem.has_pipeline = has_pipeline;
    return combine_policy(limits_of(1, max_blocks), problem).roles.pipelined;
  };
  EXPECT_TRUE(pipelined(2, 8, 132)) << "4 rows a result";
  EXPECT_FALSE(pipelined(2, 8, 132, false)) << "no such kernel";
  EXPECT_FALSE(pipelined(4, 8, 132)) << "2.2 rows a result: the links take longer";
  EXPECT_FALSE(pipelined(2, 8, 132, true, true)) << "a row a result";
  EXPECT_TRUE(pipelined(4, 8, 24));
  EXPECT_TRUE(pipelined(4, 8, 66));
  EXPECT_FALSE(pipelined(4, 8, 67)) << "not few";
}

// One of 8 ranks that have the experts: a token has one row here.
TEST(CudaPolicyRules, WithoutAnExchangeATokenHasFewRowsHere) {
  Problem problem = problem_of(8192, 1);
  const auto combine = [&] { return combine_policy(limits_of(1, 24), problem).roles.senders; };
  const auto dispatch = [&] { return dispatch_policy(limits_of(2), problem).roles.senders; };
  const int combine_before = combine();
  const int dispatch_before = dispatch();
  problem.local_fraction = 1.0 / 8;
  EXPECT_LT(combine(), combine_before) << "sums take more of the time";
  EXPECT_GT(dispatch(), dispatch_before) << "sending takes more of the time";
  EXPECT_FALSE(combine_policy(limits_of(1), problem).roles.pipelined);
}

TEST(CudaPolicyRules, NoKernelIsLaunchedAtTheEndOfALargeCombine) {
  const auto late = [](int arrivals, int max_blocks = kMultiprocessors) {
    Problem problem = problem_of(arrivals / 4);
    return combine_policy(limits_of(1, max_blocks), problem).roles.triggers_late;
  };
  EXPECT_FALSE(late(kMinResultsToTriggerLate - 4));
  EXPECT_TRUE(late(kMinResultsToTriggerLate));
  EXPECT_TRUE(late(kMinResultsToTriggerLate, 67));
  EXPECT_FALSE(late(kMinResultsToTriggerLate, 66)) << "a multiprocessor for each block";
}

TEST(CudaPolicyRules, ManyWaitersBackOff) {
  EXPECT_FALSE(backs_off(problem_of(kMinArrivalsToBackOff / 4 - 1)));
  EXPECT_TRUE(backs_off(problem_of(kMinArrivalsToBackOff / 4)));
}

}  // namespace
}  // namespace ferry::cuda
