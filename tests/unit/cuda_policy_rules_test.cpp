// The launch policies of the GPU kernels: plain arithmetic, so tested without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"

namespace ferry::cuda {
namespace {

constexpr DeviceLimits kHopper{132, 2, 264};

Problem problem_of(int tokens, bool sends = true, bool receives = true, int parts = 1) {
  return {.ranks = 4,
          .num_tokens = tokens,
          .arrivals = 4 * tokens,
          .parts = parts,
          .buffer_teams = 8,
          .sends = sends,
          .receives = receives,
          .groups = 64,
          .top_k = 8};
}

TEST(CudaTuning, FewTokensGetLargeTeams) {
  EXPECT_EQ(team_threads_for(264, 264), 512);
  EXPECT_EQ(team_threads_for(264, 265), 256);
  EXPECT_EQ(team_threads_for(264, 529), 128);
  EXPECT_EQ(team_threads_for(264, 100000), 32);
  EXPECT_EQ(team_threads_for(264, 100000, 8), 64) << "a sending team has a buffer";
  EXPECT_EQ(combine_policy(kHopper, problem_of(1)).roles.send_team_threads, 512);
  EXPECT_EQ(combine_policy(kHopper, problem_of(150)).roles.send_team_threads, 128);
}

TEST(CudaTuning, ASendingTeamHasAThreadForEachDestination) {
  EXPECT_EQ(teams_with_threads(1), kMostTeams);
  EXPECT_EQ(teams_with_threads(32), 16);
  EXPECT_EQ(teams_with_threads(33), 8) << "top-32, and the own rank";
}

TEST(CudaTuning, TeamsServeAllRanksInTurn) {
  EXPECT_EQ(sharing_teams(132, 64, 4, 100000), 1055);
  EXPECT_EQ(sharing_teams(132, 64, 6, 100000), 1055);
  EXPECT_EQ(sharing_teams(3, 512, 3, 100), 2);
  EXPECT_EQ(sharing_teams(1, 512, 4, 100), 1);
  EXPECT_EQ(sharing_teams(132, 64, 4, 1056), 1056) << "each has one: none may have two";
}

TEST(CudaTuning, OneSenderForEachTokenUpToAShareOfTheDevice) {
  EXPECT_EQ(dispatch_policy(kHopper, problem_of(0)).roles.senders, 1);
  EXPECT_EQ(dispatch_policy(kHopper, problem_of(1)).roles.senders, 1);
  EXPECT_EQ(dispatch_policy(kHopper, problem_of(2 * kMostSenders)).roles.senders, 2 * kMostSenders);
  EXPECT_EQ(dispatch_policy(kHopper, problem_of(kManyTokens, true, true, 8)).roles.senders, kMostSenders);
  EXPECT_EQ(dispatch_policy(kHopper, problem_of(kManyTokens + 1, true, true, 8)).roles.senders, kMostSendersOfMany);
}

TEST(CudaTuning, MessagesThatAreSmallForTheirColumnsHaveMoreSenders) {
  Problem problem = problem_of(512, true, true, 8);
  problem.hidden = 7168;
  problem.message_bytes = 5600;  // of mxfp6
  problem.all_direct = false;
  EXPECT_EQ(dispatch_policy(kHopper, problem).roles.senders, kMostSendersOfMany);
  problem.message_bytes = 4032;
  EXPECT_EQ(dispatch_policy(kHopper, problem).roles.senders, 2 * kMostSenders);
  EXPECT_EQ(dispatch_policy(kHopper, problem).roles.send_team_threads, 128);
}

// What is measured on 4 and 2 H200s.
TEST(CudaTuning, MessagesAreStoredWhereATeamHasMoreThanOne) {
  const auto roles = [](int ranks, int top_k, int hidden, int message_bytes, int tokens, int most_blocks = 264) {
    Problem problem = problem_of(tokens, true, true, 8);
    problem.ranks = ranks;
    problem.top_k = top_k;
    problem.hidden = hidden;
    problem.message_bytes = message_bytes;
    return dispatch_policy({132, 2, most_blocks}, problem).roles;
  };
  const DispatchRoles fp8 = roles(4, 8, 7168, 7392, 512);
  EXPECT_TRUE(fp8.stores);
  EXPECT_EQ(fp8.senders, 75);
  EXPECT_EQ(fp8.send_team_threads, 128);
  EXPECT_FALSE(roles(4, 8, 7168, 7392, 384).stores);
  EXPECT_FALSE(roles(4, 8, 7168, 7392, 4096, 24).stores) << "so few blocks cannot fill the links by stores";
  EXPECT_TRUE(roles(4, 8, 7168, 4032, 1024).stores);
  EXPECT_EQ(roles(4, 8, 7168, 4032, 1024).senders, 3 * kMostSenders);
  EXPECT_FALSE(roles(4, 8, 7168, 4032, 512).stores);
  EXPECT_EQ(roles(4, 8, 7168, 14336, 4096).senders, 38) << "larger messages, fewer of them";
  EXPECT_EQ(roles(4, 8, 4096, 4224, 4096).send_team_threads, 64);
  EXPECT_EQ(roles(4, 8, 4096, 4224, 4096).senders, 65);
  EXPECT_EQ(roles(4, 2, 4096, 4224, 4096).senders, kMostStoringSenders) << "few others get a message";
  EXPECT_EQ(roles(2, 8, 7168, 7392, 4096).senders, kMostStoringSenders);
  EXPECT_FALSE(roles(2, 8, 7168, 7392, 512).stores);
  EXPECT_FALSE(roles(1, 8, 7168, 7392, 4096).stores) << "no links to fill";
  EXPECT_EQ(roles(8, 8, 7168, 7392, 4096).senders, 44);
  EXPECT_EQ(roles(8, 8, 7168, 4032, 4096).senders, 80) << "a token goes to more ranks";
  EXPECT_FALSE(roles(8, 8, 7168, 14336, 4096).stores) << "too few senders to make so many messages";
  EXPECT_FALSE(roles(72, 22, 8192, 16384, 4096).stores);
}

TEST(CudaTuning, ManyResultsAreSentAndSummedByDifferentBlocks) {
  const auto policy = [](int ranks, int hidden, int tokens, int most_blocks = 132, bool all_direct = true,
                         int top_k = 8) {
    Problem problem = problem_of(tokens);
    problem.ranks = ranks;
    problem.arrivals = std::min(ranks, top_k) * tokens;
    problem.hidden = hidden;
    problem.all_direct = all_direct;
    return combine_policy({132, 1, most_blocks}, problem);
  };
  EXPECT_EQ(policy(4, 7168, 4096), (CombinePolicy{132, {78, 78, 64, 128, true, false, false, true}}));
  EXPECT_EQ(policy(4, 7168, 4096, 24), (CombinePolicy{24, {16, 16, 32, 128, true, true}}));
  EXPECT_EQ(policy(4, 4096, 4096), (CombinePolicy{132, {68, 68, 32, 128, true, false, false, true}}));
  EXPECT_EQ(policy(4, 2880, 4096), (CombinePolicy{132, {88, 88, 32, 64, true, false, false, true}}));
  EXPECT_EQ(policy(4, 7168, 198).roles.senders, 78);
  EXPECT_EQ(policy(4, 7168, 197).roles.senders, 132) << "few results: blocks do both";
  EXPECT_EQ(policy(4, 7168, 4096, 132, false).roles.senders, 132) << "some ranks are reached from buffers only";
  EXPECT_EQ(policy(1, 7168, 4096).roles.senders, 132) << "no links to fill";
  EXPECT_EQ(policy(4, 4096, 198, 132, true, 2).roles.senders, 68) << "half of the turns have a result";
  EXPECT_EQ(policy(72, 7168, 11, 132, true, 8).roles.send_team_threads, 512) << "most turns are soon over";
  EXPECT_EQ(policy(16, 7168, 50, 132, true, 2).roles.send_team_threads, 512);
}

TEST(CudaTuning, RowsComeByWayOfSharedMemoryWhereBlocksAreFewOrResultsOfManyRows) {
  const auto policy = [](int ranks, int top_k, int most_blocks, bool has_pipeline = true, bool exact = false) {
    Problem problem = problem_of(4096);
    problem.exact = exact;
    problem.ranks = ranks;
    problem.top_k = top_k;
    problem.arrivals = std::min(ranks, top_k) * problem.num_tokens;
    problem.hidden = 7168;
    problem.has_pipeline = has_pipeline;
    return combine_policy({132, 1, most_blocks}, problem);
  };
  EXPECT_EQ(policy(2, 8, 132), (CombinePolicy{132, {78, 78, 64, 128, true, false, true, true}})) << "4 rows a result";
  EXPECT_FALSE(policy(2, 8, 132, false).roles.pipelined) << "no such kernel";
  EXPECT_FALSE(policy(4, 8, 132).roles.pipelined) << "2.2 rows a result: the links take longer";
  EXPECT_FALSE(policy(2, 4, 132).roles.pipelined);
  EXPECT_EQ(policy(2, 8, 24), (CombinePolicy{24, {18, 18, 32, 32, true, false, true}}));
  EXPECT_EQ(policy(4, 8, 24), (CombinePolicy{24, {17, 17, 32, 32, true, false, true}})) << "more results for each row";
  EXPECT_EQ(policy(4, 2, 24).roles.senders, 13);
  EXPECT_EQ(policy(2, 8, 24, true, true).roles.senders, 15) << "every row is a result";
  EXPECT_FALSE(policy(2, 8, 132, true, true).roles.pipelined) << "a row a result";
  EXPECT_TRUE(policy(2, 8, 66).roles.pipelined);
  EXPECT_EQ(policy(2, 8, 67).roles.receive_team_threads, kLeastSumThreads) << "not few";
}

TEST(CudaTuning, ShortRowsAreSummedBySmallerTeams) {
  const auto threads = [](int hidden, int tokens) {
    Problem problem = problem_of(tokens);
    problem.hidden = hidden;
    return least_sum_threads(problem, 44);
  };
  EXPECT_EQ(threads(7168, 512), 128);
  EXPECT_EQ(threads(4096, 704), 32) << "a token for each warp";
  EXPECT_EQ(threads(4096, 705), 128);
  EXPECT_EQ(threads(2880, 705), 64);
  EXPECT_EQ(threads(4128, 1), 128);
}

// What is measured on 4 and 2 H200s: four teams of each block send 14336 bytes to 3 others, eight 8192, or 14336 to
// one.
TEST(CudaTuning, SoManyTeamsSendResultsAsTheLinksCarryAtOnce) {
  Problem problem = problem_of(4096);
  problem.hidden = 7168;
  problem.all_direct = false;
  constexpr DeviceLimits kOneBlockEach{132, 1, 132};
  EXPECT_EQ(combine_policy(kOneBlockEach, problem).roles.send_team_threads, 128);
  EXPECT_EQ(combine_policy({132, 1, 24}, problem).roles.send_team_threads, 64) << "few blocks, few bytes";
  problem.hidden = 4096;
  problem.buffer_teams = 16;
  EXPECT_EQ(combine_policy(kOneBlockEach, problem).roles.send_team_threads, 64);
  problem.hidden = 7168;
  problem.buffer_teams = 8;
  problem.ranks = 2;
  EXPECT_EQ(combine_policy(kOneBlockEach, problem).roles.send_team_threads, 64);
  problem.ranks = 1;
  problem.hidden = 1 << 20;
  EXPECT_EQ(combine_policy(kOneBlockEach, problem).roles.send_team_threads, 64) << "nothing leaves";
}

// What is measured on 2 H200s.
TEST(CudaTuning, FewMultiprocessorsHaveTwoBlocksEach) {
  const auto policy = [](int tokens, int most_blocks, bool sends = true, bool receives = true,
                         bool counts_all = false) {
    Problem problem = problem_of(tokens, sends, receives, std::clamp(tokens / 32, 1, 8));
    problem.counts_all = counts_all;
    problem.ranks = 2;
    problem.arrivals = 2 * tokens;
    problem.hidden = 7168;
    problem.message_bytes = 7392;
    problem.can_pair_blocks = true;
    return dispatch_policy({132, 2, most_blocks}, problem);
  };
  EXPECT_EQ(policy(4096, 24).blocks_per_cta, 2);
  EXPECT_EQ(policy(4096, 24).blocks, 48);
  EXPECT_EQ(policy(4096, 24).roles.routing_blocks, 8);
  EXPECT_EQ(policy(4096, 24).roles.senders, 24) << "one of each multiprocessor";
  EXPECT_EQ(policy(4096, 24).roles.send_team_threads, 64);
  EXPECT_TRUE(policy(4096, 24).roles.routing_blocks_receive);
  EXPECT_TRUE(policy(32, 24, true, true, true).roles.counts_apart) << "blocks_per_cta are blocks to it";
  EXPECT_EQ(policy(4096, 66).blocks, 132);
  EXPECT_EQ(policy(4096, 67).blocks_per_cta, 1) << "not few";
  EXPECT_EQ(policy(4096, 3).blocks_per_cta, 1) << "too few for all roles";
  EXPECT_EQ(policy(4096, 4).blocks, 8);
  EXPECT_EQ(policy(4096, 4).roles.routing_blocks, 1);
  EXPECT_EQ(policy(1, 66).blocks, 34) << "no more than there is to do";
  EXPECT_EQ(policy(64, 66, true, false).blocks, 128) << "a thread block for each that sends";
  EXPECT_EQ(policy(4096, 24, false, true).blocks, 48);
}

TEST(CudaTuning, HalvesAreAllBlocksAndSendersAndRankersOfOneKindEach) {
  for (int thread_blocks = 1; thread_blocks <= 66; ++thread_blocks)
    for (int routing_blocks = 0; routing_blocks <= std::min(thread_blocks, 9); ++routing_blocks) {
      std::set<int> places;
      for (int block = 0; block < thread_blocks; ++block)
        for (const int half : {0, 1}) {
          const LogicalBlock place = logical_block_of(block, half, thread_blocks, routing_blocks);
          EXPECT_EQ(place.half, half);
          EXPECT_EQ(place.count, 2 * thread_blocks);
          EXPECT_EQ(half == 0, place.index >= routing_blocks && place.index < routing_blocks + thread_blocks);
          places.insert(place.index);
        }
      EXPECT_EQ(static_cast<int>(places.size()), 2 * thread_blocks);
      EXPECT_EQ(*places.begin(), 0);
      EXPECT_EQ(*places.rbegin(), 2 * thread_blocks - 1);
    }
}

TEST(CudaTuning, ExchangesAtTheSameTimeHaveAMultiprocessorForEachBlock) {
  EXPECT_EQ(most_blocks(132, 2, 1), 264);
  EXPECT_EQ(most_blocks(132, 2, 2), 66);
  EXPECT_EQ(most_blocks(132, 1, 8), 16);
  for (const bool alone : {false, true})
    for (const int tokens : {1, 150, 4096}) {
      const DeviceLimits limits{132, 1, 66, alone};
      EXPECT_EQ(dispatch_policy(limits, problem_of(tokens)).pdl, alone);
      EXPECT_EQ(combine_policy(limits, problem_of(tokens)).pdl, alone);
    }
}

TEST(CudaTuning, ManyWaitersNap) {
  EXPECT_FALSE(backs_off(problem_of(1)));
  EXPECT_FALSE(backs_off(problem_of(kManyArrivals / 4 - 1)));
  EXPECT_TRUE(backs_off(problem_of(kManyArrivals / 4)));
}

TEST(CudaTuning, FewSendersHaveSmallerTeams) {
  EXPECT_EQ(dispatch_policy(kHopper, problem_of(4096, true, true, 8)).roles.send_team_threads, 128);
  EXPECT_EQ(dispatch_policy({132, 2, 24}, problem_of(4096, true, true, 8)).roles.send_team_threads, 64);
}

// What is measured on 2 H200s.
TEST(CudaTuning, OfFewBlocksAsManySendAsTheirPartOfTheTime) {
  const auto roles = [](int top_k, int hidden, int message_bytes, int buffer_teams, int tokens = 4096) {
    Problem problem = problem_of(tokens, true, true, 8);
    problem.ranks = 2;
    problem.top_k = top_k;
    problem.hidden = hidden;
    problem.message_bytes = message_bytes;
    problem.buffer_teams = buffer_teams;
    return dispatch_policy({132, 2, 24}, problem).roles;
  };
  EXPECT_EQ(roles(8, 7168, 7392, 8).senders, 11) << "of 24, of which 8 rank first";
  EXPECT_EQ(roles(8, 7168, 14336, 4).senders, 10) << "more to lay out";
  EXPECT_EQ(roles(8, 7168, 4032, 16).senders, 13);
  EXPECT_EQ(roles(2, 4096, 4224, 8).senders, 15) << "one receives from the beginning";
  EXPECT_EQ(roles(8, 7168, 7392, 8).send_team_threads, 64);
  EXPECT_EQ(roles(8, 7168, 4032, 16).send_team_threads, 32);
  EXPECT_EQ(roles(8, 7168, 4032, 16, 256).send_team_threads, 64) << "less than two tokens for each warp";
}

TEST(CudaTuning, FewTokensHaveBlocksForThePaddingOfTheirGroups) {
  const auto blocks_for = [](int tokens, int groups) {
    Problem problem = problem_of(tokens);
    problem.groups = groups;
    const DispatchPolicy policy = dispatch_policy(kHopper, problem);
    return policy.blocks - policy.roles.routing_blocks - policy.roles.senders;
  };
  EXPECT_EQ(blocks_for(1, 64), kLeastReceivers);
  EXPECT_EQ(blocks_for(4, 64), 4 * 4 + 32) << "no more than there are rows";
  EXPECT_EQ(blocks_for(8, 64), 4 * 8 + 64);
  EXPECT_EQ(blocks_for(8, 2), 4 * 8 + 2) << "or groups";
  EXPECT_EQ(blocks_for(20, 1000), 4 * 20 + kMostPaddingBlocks);
  EXPECT_EQ(blocks_for(4096, 64), 264 - 1 - kMostSendersOfMany);
  EXPECT_EQ(warpwise_team_threads_for(128, 64), 1024);
  EXPECT_EQ(warpwise_team_threads_for(128, 64, 32), 512) << "teams of several blocks leave some to others";
}

TEST(CudaTuning, AFewTokensAreReceivedByTeamsOfSeveralBlocks) {
  EXPECT_EQ(warpwise_team_threads_for(32, 4), kMostTeamBlocks * kThreads);
  EXPECT_EQ(warpwise_team_threads_for(7, 4), kThreads);
  EXPECT_EQ(warpwise_team_threads_for(132, 264), kThreads / 2);
  EXPECT_EQ(sharing_teams(33, 2 * kThreads, 4, 4), 16);
  const CombinePolicy policy = combine_policy(kHopper, problem_of(1));
  EXPECT_EQ(policy.blocks - policy.roles.first_receiver, kMostTeamBlocks);
  EXPECT_EQ(policy.roles.receive_team_threads, kMostTeamBlocks * kThreads);
}

TEST(CudaTuning, AFewEntriesAreCountedByABlockOfItsOwn) {
  EXPECT_TRUE(each_counts_all(256, 8, 8));
  EXPECT_FALSE(each_counts_all(257, 8, 64)) << "more than 2048 entries";
  EXPECT_FALSE(each_counts_all(33, 1, 1)) << "their bits do not fit";
  Problem problem = problem_of(32);
  const DispatchRoles together = dispatch_policy(kHopper, problem).roles;
  EXPECT_FALSE(together.counts_apart);
  problem.counts_all = true;
  const DispatchRoles apart = dispatch_policy(kHopper, problem).roles;
  EXPECT_TRUE(apart.counts_apart);
  EXPECT_EQ(apart.routing_blocks, 2);
  EXPECT_EQ(apart.table_blocks(), 1);
  EXPECT_EQ(apart.senders, together.senders);
  EXPECT_FALSE(dispatch_policy({132, 2, 24}, problem).roles.counts_apart) << "few blocks";
  problem.all_direct = false;
  EXPECT_FALSE(dispatch_policy(kHopper, problem).roles.counts_apart) << "one fence for counts and entries";
}

// A small round is soon over: routing_blocks that received too would end last. A few blocks share all problem.
TEST(CudaTuning, RankersReceiveOnlyWhereBlocksAreFew) {
  EXPECT_FALSE(dispatch_policy(kHopper, problem_of(1)).roles.routing_blocks_receive);
  EXPECT_FALSE(dispatch_policy(kHopper, problem_of(4096, true, true, 8)).roles.routing_blocks_receive);
  EXPECT_TRUE(dispatch_policy({132, 2, 24}, problem_of(4096, true, true, 8)).roles.routing_blocks_receive);
}

TEST(CudaTuning, OnlyFewTeamsThatHaveMoreTokensAskForRowsAhead) {
  EXPECT_TRUE(combine_policy({132, 1, 24}, problem_of(4096, true, false, 8)).roles.prefetches);
  EXPECT_TRUE(combine_policy({132, 1, 24}, problem_of(4096, true, true, 8)).roles.prefetches);
  EXPECT_FALSE(combine_policy(kHopper, problem_of(4096, true, true, 8)).roles.prefetches);
  EXPECT_FALSE(combine_policy(kHopper, problem_of(1, true, true, 8)).roles.prefetches);
}

TEST(CudaTuning, NoKernelComesInAtTheEndOfALargeCombine) {
  const auto holds = [](int ranks, int tokens, int most_blocks = 132) {
    Problem problem = problem_of(tokens, true, true, 8);
    problem.ranks = ranks;
    problem.arrivals = tokens * ranks;
    return combine_policy({132, 1, most_blocks}, problem).roles.triggers_late;
  };
  EXPECT_FALSE(holds(1, 1024));
  EXPECT_TRUE(holds(1, 2048));
  EXPECT_FALSE(holds(4, 256));
  EXPECT_TRUE(holds(4, 512)) << "results count, not tokens";
  EXPECT_TRUE(holds(4, 512, 67));
  EXPECT_FALSE(holds(4, 512, 66)) << "a multiprocessor for each block";
}

// Of hidden 7168, top-8: FP8 has 56 words of scales for each row and messages of 7392 bytes, NVFP4 112 and 4032.
TEST(CudaTuning, ManyWordsOfScalesAreStoredLast) {
  const auto last = [](int ranks, int tokens, int words, int message_bytes, int most_blocks = 264, bool receives = true,
                       bool can_pair_blocks = false) {
    Problem problem = problem_of(tokens, true, receives, 8);
    problem.can_pair_blocks = can_pair_blocks;
    problem.ranks = ranks;
    problem.hidden = 7168;
    problem.scale_words = words;
    problem.message_bytes = message_bytes;
    const DeviceLimits limits{132, 2, most_blocks};
    return stores_scales_last(limits, problem, dispatch_policy(limits, problem).thread_blocks());
  };
  EXPECT_TRUE(last(2, 4096, 56, 7392));
  EXPECT_FALSE(last(2, 512, 56, 7392)) << "the kernel takes longer than the stores";
  EXPECT_FALSE(last(2, 4096, 56, 7392, 264, false)) << "nothing is laid out";
  EXPECT_FALSE(last(2, 4096, 0, 7392)) << "scales of a row lie together";
  EXPECT_FALSE(last(4, 8192, 56, 7392)) << "the links take longer than the stores";
  EXPECT_TRUE(last(4, 4096, 112, 4032));
  EXPECT_TRUE(last(4, 4096, 56, 7392, 24)) << "few blocks take longer than the links";
  EXPECT_FALSE(last(4, 128, 56, 7392, 24));
  for (const bool can_pair_blocks : {false, true}) {
    EXPECT_TRUE(last(4, 1024, 56, 7392, 66, true, can_pair_blocks)) << "half of the multiprocessors are few";
    EXPECT_TRUE(last(4, 256, 56, 7392, 24, true, can_pair_blocks));
  }
}

TEST(CudaTuning, PrintsItself) {
  std::ostringstream text;
  text << DispatchPolicy{264, {8, 66, false, 64, 32, 3167}} << '\n' << CombinePolicy{132, {132, 0, 64, 32}} << '\n';
  text << DispatchPolicy{264, {8, 66, false, 64, 32, 3167, true}} << '\n';
  text << DispatchPolicy{35, {2, 1, false, 512, 1024, 16, false, true}} << '\n';
  text << CombinePolicy{132, {88, 88, 64, 32, true, true}} << '\n';
  text << CombinePolicy{24, {18, 18, 32, 32, true, false, true, true}, false} << '\n';
  text << DispatchPolicy{48, {8, 24, true, 64, 32, 383}, true, 2};
  EXPECT_EQ(text.str(),
            "264 blocks: 8 rank, 66 send in teams of 64, the others receive in 3167 teams of 32\n"
            "132 blocks: 132 send in teams of 64, from the 0th on they receive in teams of 32\n"
            "264 blocks: 8 rank, 66 send in teams of 64 by stores, the others receive in 3167 teams of 32\n"
            "35 blocks: 2 rank, one of them counts, 1 send in teams of 512, the others receive in 16 teams of 1024\n"
            "132 blocks: 88 send in teams of 64, from the 88th on they receive in teams of 32, in place, prefetching\n"
            "24 blocks: 18 send in teams of 32, from the 18th on they receive in teams of 32, in place, by pipelined, "
            "holding the "
            "next kernel, not pdl\n"
            "48 blocks_per_cta: 8 rank, 24 send in teams of 64, the others and then those that rank receive in 383 "
            "teams of 32");
}

}  // namespace
}  // namespace ferry::cuda
