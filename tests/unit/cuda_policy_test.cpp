// What holds of the launch policies whatever a device has and a call has to do: random DeviceLimits and Problem.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"
#include "cuda/policy/policy_text.h"

namespace ferry::cuda {
namespace {

constexpr int kTries = 20000;

class RandomCalls {
 public:
  // Three blocks or more: an exchange refuses what leaves fewer.
  DeviceLimits limits() {
    const int multiprocessors = between(3, 148);
    const int blocks_of_each = between(1, 3);
    return {multiprocessors, blocks_of_each, 3 + size(2 * multiprocessors * blocks_of_each)};
  }
  Problem problem() {
    Problem problem;
    problem.ranks = between(0, 3) == 0 ? 1 : between(1, 72);
    problem.num_tokens = size(8192);
    problem.arrivals = between(0, 2) == 0 ? size(8192) : problem.num_tokens * between(1, 4);
    problem.table_parts = between(1, 32);
    problem.buffer_teams = 1 << between(0, 4);
    const int calls = between(0, 2);
    problem.sends = calls != 1;
    problem.receives = calls != 2;
    problem.hidden = 32 * between(1, 256);
    problem.message_bytes = problem.hidden * between(1, 4) / 2;
    problem.groups = size(512);
    problem.top_k = between(1, 32);
    problem.local_fraction = problem.ranks == 1 ? 1.0 / between(1, 8) : 1;
    problem.has_remote_ranks = between(0, 3) == 0;
    problem.counts_all = between(0, 1) != 0;
    problem.exact = between(0, 1) != 0;
    problem.has_pipeline = between(0, 1) != 0;
    problem.can_pair_blocks = between(0, 1) != 0;
    problem.may_copy_results = problem.has_pipeline && between(0, 1) != 0;
    if (between(0, 2) == 0) problem.order = RowOrder::by_source;
    if (between(0, 2) == 0) problem.result_bytes = problem.hidden;
    problem.reads_rows_twice = between(0, 3) == 0;
    return problem;
  }

 private:
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  // Small ones as often as large ones.
  int size(int most) { return between(0, between(0, 1) == 0 ? 40 : most); }

  std::mt19937 random_{7};
};

// The limits and the problem of a failure.
testing::Message said(const DeviceLimits& limits, const Problem& p) {
  return testing::Message() << limits.blocks() << " blocks of " << limits.multiprocessors << " * "
                            << limits.blocks_per_multiprocessor << ": ranks " << p.ranks << ", tokens " << p.num_tokens
                            << ", arrivals " << p.arrivals << ", table_parts " << p.table_parts << ", counts_all "
                            << p.counts_all << ", buffer_teams " << p.buffer_teams << ", sends " << p.sends
                            << ", receives " << p.receives << ", hidden " << p.hidden << ", message_bytes "
                            << p.message_bytes << ", groups " << p.groups << ", top_k " << p.top_k
                            << ", local_fraction " << p.local_fraction << ", has_remote_ranks " << p.has_remote_ranks
                            << ", exact " << p.exact << ", has_pipeline " << p.has_pipeline << ", can_pair_blocks "
                            << p.can_pair_blocks << ", may_copy_results " << p.may_copy_results << ", order "
                            << static_cast<int>(p.order) << ", result_bytes " << p.result_bytes << ", reads_rows_twice "
                            << p.reads_rows_twice;
}

// Teams are as large as they can be without any of them having two tokens; a block has at most `max_teams`.
void expect_largest_teams(int blocks, int team_threads, int tokens, int max_teams) {
  ASSERT_TRUE(team_threads > 0 && kThreads % team_threads == 0) << team_threads;
  const int teams = kThreads / team_threads;
  EXPECT_TRUE(teams == 1 || teams <= max_teams) << "a team has no buffer";
  EXPECT_TRUE(teams == 1 || blocks * teams / 2 < tokens) << "larger teams would have had a token each";
  EXPECT_TRUE(2 * teams > max_teams || blocks * teams >= tokens) << "tokens wait for teams that could be smaller";
}

// Every routing block has parts of the table, and other roles have blocks.
void expect_routing_blocks(const DeviceLimits& limits, const Problem& problem, const DispatchRoles& roles) {
  const int parts = parts_per_routing_block(problem, roles.table_blocks());
  EXPECT_GT(problem.table_parts, (roles.table_blocks() - 1) * parts) << "a block has no part";
  EXPECT_LE(roles.table_blocks(), std::max(kRoutingBlocks, limits.blocks() / 8));
  EXPECT_LE(roles.table_blocks() + 2, std::max(3, limits.blocks()));
  EXPECT_TRUE(roles.table_blocks() > 1 || problem.table_parts == 1 || limits.blocks() < 6)
      << "one block routes for all";
}

void expect_senders(const DeviceLimits& limits, const Problem& problem, const DispatchPolicy& policy) {
  const DispatchRoles& roles = policy.roles;
  const Regime regime = dispatch_regime(limits, problem);
  const bool paired = policy.blocks_per_cta == 2;
  const int room = limits.blocks() - (paired ? 0 : roles.routing_blocks);
  expect_routing_blocks(limits, problem, roles);
  EXPECT_TRUE(!roles.counts_apart || (problem.counts_all && !problem.has_remote_ranks))
      << "others wait for what this block counts";
  EXPECT_GE(roles.senders, 1);
  EXPECT_LE(roles.senders, std::max(1, problem.num_tokens)) << "a sender has no token";
  const int teams = kThreads / roles.send_team_threads;
  const int most = has_few_blocks(limits) && roles.routing_blocks_receive ? std::max(room - 1, 1) : room * 5 / 8;
  EXPECT_LE(roles.senders, problem.receives && !paired ? std::max(1, most) : room)
      << "too few blocks are left to receive";
  EXPECT_EQ(roles.stores, regime == Regime::many_tokens);
  if (roles.stores) {
    EXPECT_FALSE(paired) << "so few blocks cannot fill the links by stores";
    EXPECT_TRUE(!problem.has_remote_ranks && problem.ranks > 1) << "nobody to store to";
    EXPECT_LE(teams, problem.buffer_teams) << "a team has no buffer";
    EXPECT_LT(roles.senders * teams, problem.num_tokens) << "a team waits for its stores, and has one token at most";
    EXPECT_GE(roles.senders, kMinStoringSenders) << "too few to fill the links";
    return;
  }
  if (regime == Regime::one_rank) {
    EXPECT_TRUE(teams == 1 || (teams <= problem.buffer_teams &&
                               (teams * roles.senders <= max_bulk_teams(problem) ||
                                teams * roles.senders * problem.message_bytes <= kMaxBytesBeingMade)))
        << "more messages are being made than are best";
    return;
  }
  EXPECT_TRUE(problem.receives || roles.senders == std::min(room, max_bulk_senders(problem)))
      << "blocks are left unused";
  expect_largest_teams(roles.senders, roles.send_team_threads, problem.num_tokens,
                       std::min(max_teams_per_block(problem, roles.senders), max_bulk_teams(problem) / roles.senders));
}

// Blocks in pairs: no thread block has two that send, or two that route.
void expect_pairs(const DispatchPolicy& policy) {
  EXPECT_EQ(policy.blocks % 2, 0);
  EXPECT_LE(policy.roles.senders, policy.blocks / 2);
  EXPECT_LE(policy.roles.routing_blocks, policy.blocks / 2);
}

// Every arrival has a team, and every team has a block.
void expect_receivers(const Problem& problem, const DispatchPolicy& policy) {
  const DispatchRoles& roles = policy.roles;
  const int receivers = policy.blocks - roles.senders - (roles.routing_blocks_receive ? 0 : roles.routing_blocks);
  const int teams = receivers * kThreads / roles.receive_team_threads;
  const int tokens = problem.ranks * std::max(1, problem.num_tokens);
  EXPECT_GE(roles.receive_teams, 1);
  EXPECT_LE(roles.receive_teams, teams);
  EXPECT_LT(teams - roles.receive_teams, problem.ranks) << "teams are idle";
  if (tokens <= teams)
    EXPECT_EQ(roles.receive_teams, teams) << "each has one: none may have two";
  else
    EXPECT_EQ(std::gcd(roles.receive_teams, problem.ranks), 1) << "a team serves some ranks only";
  const int left = receivers - kMaxTeamBlocks * tokens;
  if (roles.receive_team_threads > kThreads)
    EXPECT_GE(left, padding_blocks(problem) / 2) << "padding has too few blocks without tokens";
  else
    EXPECT_LT(left, padding_blocks(problem) / 2) << "teams could have been of several blocks";
}

TEST(CudaPolicy, HoldsForAnyDispatch) {
  RandomCalls calls;
  for (int i = 0; i < kTries && !testing::Test::HasFailure(); ++i) {
    const DeviceLimits limits = calls.limits();
    const Problem problem = calls.problem();
    const DispatchPolicy policy = dispatch_policy(limits, problem);
    SCOPED_TRACE(said(limits, problem) << ": " << policy);
    EXPECT_LE(policy.blocks, policy.blocks_per_cta * std::min(limits.multiprocessors * limits.blocks_per_multiprocessor,
                                                              limits.max_blocks));
    const int idle = policy.blocks - policy.roles.routing_blocks - policy.roles.senders;
    EXPECT_TRUE(idle > 0 || !problem.receives) << "each role has a block of its own";
    EXPECT_TRUE(idle == 0 || problem.receives || policy.blocks_per_cta == 2) << "a block has no role";
    const bool paired = problem.can_pair_blocks && has_few_blocks(limits) && limits.blocks() >= kMinPairedCtas;
    EXPECT_EQ(policy.blocks_per_cta, paired ? 2 : 1);
    if (policy.blocks_per_cta == 2) expect_pairs(policy);
    EXPECT_TRUE(problem.receives || !policy.roles.routing_blocks_receive);
    if (problem.sends)
      expect_senders(limits, problem, policy);
    else
      EXPECT_EQ(policy.roles.routing_blocks + policy.roles.senders, 0);
    if (problem.receives) expect_receivers(problem, policy);
  }
}

// Results that are one row each are copied by teams of a warp, whose shared memory no sum may need meanwhile.
void expect_copies(const DeviceLimits& limits, const Problem& problem, const CombinePolicy& policy) {
  const CombineRoles& roles = policy.roles;
  EXPECT_TRUE(problem.may_copy_results && (problem.exact || problem.order == RowOrder::by_source));
  EXPECT_TRUE(roles.pipelined && has_few_blocks(limits));
  EXPECT_EQ(roles.send_team_threads, kLeastTeamThreads);
  if (roles.first_receiver != roles.senders) {
    EXPECT_EQ(roles.first_receiver, 0);
    EXPECT_EQ(roles.senders, policy.blocks) << "a block does nothing while others copy";
  }
  EXPECT_LT(roles.first_receiver, policy.blocks) << "no block sums";
}

// Each block sends or receives, and both have enough.
void expect_split_roles(const DeviceLimits& limits, const Problem& problem, const CombinePolicy& policy) {
  const CombineRoles& roles = policy.roles;
  const bool few = roles.pipelined && has_few_blocks(limits);
  EXPECT_TRUE(problem.sends && (problem.receives || few) && !problem.has_remote_ranks);
  EXPECT_TRUE(problem.ranks > 1 || roles.pipelined) << "no links to fill";
  EXPECT_EQ(policy.blocks, limits.blocks()) << "blocks are left unused";
  if (roles.copies_rows) return expect_copies(limits, problem, policy);
  EXPECT_EQ(roles.first_receiver, roles.senders) << "a block does both, or nothing";
  EXPECT_GE(roles.senders, 1);
  const int most = few ? policy.blocks - 1 : 2 * policy.blocks / 3;
  EXPECT_LE(roles.senders, problem.receives ? most : policy.blocks) << "too few blocks are left to receive";
  EXPECT_TRUE(problem.has_pipeline || !roles.pipelined) << "no such kernel";
  EXPECT_TRUE(roles.pipelined || !problem.has_pipeline || 2 * limits.blocks() > limits.multiprocessors)
      << "blocks are few";
  EXPECT_FALSE(roles.pipelined && roles.prefetches) << "rows would be loaded twice";
  EXPECT_GE(roles.send_team_threads, kLeastTeamThreads);
  EXPECT_GE(roles.receive_team_threads,
            few ? kLeastTeamThreads : min_sum_threads(problem, policy.blocks - roles.senders));
  const std::int64_t teams = std::int64_t{roles.senders} * (kThreads / roles.send_team_threads);
  const double max_bytes =
      combine_regime(limits, problem) == Regime::one_rank ? kMaxBytesSummedOfOneRank : kMaxBytesSummed;
  const std::int64_t made_at_once = teams * bytes_of_result(problem);
  EXPECT_TRUE(static_cast<double>(made_at_once) <= max_bytes || roles.senders == 1)
      << "more than the links carry at once";
}

TEST(CudaPolicy, HoldsForAnyCombine) {
  RandomCalls calls;
  for (int i = 0; i < kTries && !testing::Test::HasFailure(); ++i) {
    const DeviceLimits limits = calls.limits();
    const Problem problem = calls.problem();
    const CombinePolicy policy = combine_policy(limits, problem);
    SCOPED_TRACE(said(limits, problem) << ": " << policy);
    const CombineRoles& roles = policy.roles;
    const int results = problem.sends ? std::max(problem.arrivals, kMinReceivers) : 0;
    const int tokens = problem.receives ? std::max(problem.num_tokens, 1) : 0;
    EXPECT_LE(policy.blocks, std::min(limits.multiprocessors * limits.blocks_per_multiprocessor, limits.max_blocks));
    const Regime regime = combine_regime(limits, problem);
    const bool splits = regime == Regime::many_tokens || regime == Regime::few_blocks || regime == Regime::one_rank;
    EXPECT_EQ(regime == Regime::few_tokens, results + tokens <= limits.blocks()) << "a block for each";
    EXPECT_EQ(roles.in_place, splits || regime == Regime::few_tokens);
    EXPECT_TRUE(splits || !roles.pipelined) << "buffers take the room of the pipeline";
    if (splits) {
      expect_split_roles(limits, problem, policy);
      continue;
    }
    if (roles.in_place) {
      EXPECT_EQ(roles.senders, results);
      EXPECT_EQ(roles.first_receiver, roles.senders) << "a block does both";
      EXPECT_GE(policy.blocks - roles.senders, tokens);
      EXPECT_LE(policy.blocks - roles.senders, kMaxTeamBlocks * tokens) << "a block has nothing to do";
    } else {
      EXPECT_EQ(roles.senders, problem.sends ? policy.blocks : 0);
      EXPECT_EQ(roles.first_receiver, 0);
      EXPECT_LE(policy.blocks, std::max(results, tokens)) << "a block has nothing to do";
      EXPECT_GE(policy.blocks, std::min(limits.blocks(), std::max(results, tokens))) << "blocks are left unused";
    }
    const int turns = std::max(results, turns_to_send(problem));
    if (problem.sends)
      expect_largest_teams(roles.senders, roles.send_team_threads, turns, max_result_teams(roles.senders, problem));
    const int receivers = policy.blocks - roles.first_receiver;
    EXPECT_GE(roles.receive_team_threads, kMinSumThreads);
    if (roles.receive_team_threads > kThreads)
      EXPECT_GE(receivers, kMaxTeamBlocks * tokens);
    else if (roles.receive_team_threads > kMinSumThreads)
      expect_largest_teams(receivers, roles.receive_team_threads, tokens, kMostTeams);
  }
}

// A call that receives uses no fewer blocks where more are allowed. Blocks in pairs are another kernel.
TEST(CudaPolicy, MoreBlocksAreUsedWhereMoreAreAllowed) {
  RandomCalls calls;
  for (int i = 0; i < kTries / 10 && !testing::Test::HasFailure(); ++i) {
    DeviceLimits limits = calls.limits();
    Problem problem = calls.problem();
    problem.can_pair_blocks = false;
    problem.receives = true;
    const int most = limits.max_blocks;
    int dispatch_blocks = 0;
    int combine_blocks = 0;
    for (limits.max_blocks = 3; limits.max_blocks <= most; limits.max_blocks += 1 + limits.max_blocks / 8) {
      SCOPED_TRACE(said(limits, problem));
      const int dispatch = dispatch_policy(limits, problem).thread_blocks();
      const int combine = combine_policy(limits, problem).blocks;
      EXPECT_GE(dispatch, dispatch_blocks);
      EXPECT_GE(combine, combine_blocks);
      dispatch_blocks = dispatch;
      combine_blocks = combine;
    }
  }
}

}  // namespace
}  // namespace ferry::cuda
