// What holds of the launch policies whatever a device has and a call has to do: random Resident and Work.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"

namespace ferry::cuda {
namespace {

constexpr int kTries = 20000;

class RandomCalls {
 public:
  // Of three blocks or more: what leaves fewer is refused before.
  Resident resident() {
    const int multiprocessors = between(3, 148);
    const int blocks_of_each = between(1, 3);
    return {multiprocessors, blocks_of_each, 3 + size(2 * multiprocessors * blocks_of_each)};
  }
  Work work() {
    Work work;
    work.ranks = between(0, 3) == 0 ? 1 : between(1, 72);
    work.num_tokens = size(8192);
    work.arrivals = between(0, 2) == 0 ? size(8192) : work.num_tokens * between(1, 4);
    work.parts = between(1, 32);
    work.buffer_teams = 1 << between(0, 4);
    const int calls = between(0, 2);
    work.sends = calls != 1;
    work.receives = calls != 2;
    work.hidden = 32 * between(1, 256);
    work.message_bytes = work.hidden * between(1, 4) / 2;
    work.groups = size(512);
    work.top_k = between(1, 32);
    work.local_part = work.ranks == 1 ? 1.0 / between(1, 8) : 1;
    work.all_near = between(0, 3) != 0;
    work.counts_all = between(0, 1) != 0;
    work.exact = between(0, 1) != 0;
    work.has_rings = between(0, 1) != 0;
    work.has_halves = between(0, 1) != 0;
    return work;
  }

 private:
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  // Small ones as often as large ones.
  int size(int most) { return between(0, between(0, 1) == 0 ? 40 : most); }

  std::mt19937 random_{7};
};

testing::Message said(const Resident& resident, const Work& work) {
  return testing::Message() << resident.blocks() << " blocks of " << resident.multiprocessors << " * "
                            << resident.blocks_per_multiprocessor << "; ranks " << work.ranks << " tokens "
                            << work.num_tokens << " arrivals " << work.arrivals << " parts " << work.parts
                            << " buffers " << work.buffer_teams << " sends " << work.sends << " receives "
                            << work.receives << " hidden " << work.hidden << " message " << work.message_bytes
                            << " groups " << work.groups << " top_k " << work.top_k << " of which " << work.local_part
                            << " here, "
                            << " all near " << work.all_near << " counts all " << work.counts_all << " exact "
                            << work.exact << " has rings " << work.has_rings << " has halves " << work.has_halves;
}

// Teams of a block at most: as large as they can be without one of them having two tokens.
void expect_largest_teams(int blocks, int team_threads, int tokens, int most_teams) {
  ASSERT_TRUE(team_threads > 0 && kThreads % team_threads == 0) << team_threads;
  const int teams = kThreads / team_threads;
  EXPECT_TRUE(teams == 1 || teams <= most_teams) << "a team has no buffer";
  EXPECT_TRUE(teams == 1 || blocks * teams / 2 < tokens) << "larger teams would have had a token each";
  EXPECT_TRUE(2 * teams > most_teams || blocks * teams >= tokens) << "tokens wait for teams that could be smaller";
}

// Every block that ranks has parts of the table, and there are others.
void expect_rankers(const Resident& resident, const Work& work, const DispatchRoles& roles) {
  const int parts = parts_of_ranker(work, roles.table_blocks());
  EXPECT_GT(work.parts, (roles.table_blocks() - 1) * parts) << "a block has no part";
  EXPECT_LE(roles.table_blocks(), std::max(kFewRankers, resident.blocks() / 8));
  EXPECT_LE(roles.table_blocks() + 2, std::max(3, resident.blocks()));
  EXPECT_TRUE(roles.table_blocks() > 1 || work.parts == 1 || resident.blocks() < 6) << "one ranks for all";
}

void expect_senders(const Resident& resident, const Work& work, const DispatchPolicy& policy) {
  const DispatchRoles& roles = policy.roles;
  const bool halves = policy.halves == 2;
  const int room = resident.blocks() - (halves ? 0 : roles.rankers);
  expect_rankers(resident, work, roles);
  EXPECT_TRUE(!roles.counts_apart || (work.counts_all && work.all_near)) << "others wait for what this block counts";
  EXPECT_GE(roles.senders, 1);
  EXPECT_LE(roles.senders, std::max(1, work.num_tokens)) << "a sender has no token";
  const int teams = kThreads / roles.send_team_threads;
  const int most = has_few_blocks(resident) && roles.rankers_receive ? std::max(room - 1, 1) : room * 5 / 8;
  EXPECT_LE(roles.senders, work.receives && !halves ? std::max(1, most) : room) << "too few blocks are left to receive";
  if (roles.stores) {
    EXPECT_FALSE(halves) << "so few blocks cannot fill the links by stores";
    EXPECT_TRUE(work.all_near && work.ranks > 1) << "nobody to store to";
    EXPECT_LE(teams, work.buffer_teams) << "a team has no buffer";
    EXPECT_LT(roles.senders * teams, work.num_tokens) << "a team waits for its stores, and has one token at most";
    EXPECT_GE(roles.senders, kLeastStoringSenders) << "too few to fill the links";
    return;
  }
  EXPECT_TRUE(work.receives || roles.senders == std::min(room, most_senders(resident, work)))
      << "blocks are left unused";
  expect_largest_teams(
      roles.senders, roles.send_team_threads, work.num_tokens,
      std::min(most_teams_with_buffers(work, roles.senders), most_send_teams(resident, work) / roles.senders));
}

// Halves of thread blocks: as many as these have, and no thread block has two that send, or two that rank.
void expect_halves(const DispatchPolicy& policy) {
  EXPECT_EQ(policy.blocks % 2, 0);
  EXPECT_LE(policy.roles.senders, policy.blocks / 2);
  EXPECT_LE(policy.roles.rankers, policy.blocks / 2);
}

// No place of the arrivals is without a team, and none is served by one that no block has.
void expect_receivers(const Work& work, const DispatchPolicy& policy) {
  const DispatchRoles& roles = policy.roles;
  const int receivers = policy.blocks - roles.senders - (roles.rankers_receive ? 0 : roles.rankers);
  const int teams = receivers * kThreads / roles.receive_team_threads;
  const int places = work.ranks * std::max(1, work.num_tokens);
  EXPECT_GE(roles.receive_teams, 1);
  EXPECT_LE(roles.receive_teams, teams);
  EXPECT_LT(teams - roles.receive_teams, work.ranks) << "teams are idle";
  if (places <= teams)
    EXPECT_EQ(roles.receive_teams, teams) << "each has one: none may have two";
  else
    EXPECT_EQ(std::gcd(roles.receive_teams, work.ranks), 1) << "a team serves some ranks only";
  const int left = receivers - kMostTeamBlocks * places;
  if (roles.receive_team_threads > kThreads)
    EXPECT_GE(left, padding_blocks(work) / 2) << "padding has too few blocks without tokens";
  else
    EXPECT_LT(left, padding_blocks(work) / 2) << "teams could have been of several blocks";
}

TEST(CudaPolicy, HoldsForAnyDispatch) {
  RandomCalls calls;
  for (int i = 0; i < kTries && !testing::Test::HasFailure(); ++i) {
    const Resident resident = calls.resident();
    const Work work = calls.work();
    const DispatchPolicy policy = dispatch_policy(resident, work);
    SCOPED_TRACE(said(resident, work) << ": " << policy);
    EXPECT_LE(policy.blocks, policy.halves * std::min(resident.multiprocessors * resident.blocks_per_multiprocessor,
                                                      resident.most_blocks));
    const int idle = policy.blocks - policy.roles.rankers - policy.roles.senders;
    EXPECT_TRUE(idle > 0 || !work.receives) << "each role that has work has a block of its own";
    EXPECT_TRUE(idle == 0 || work.receives || policy.halves == 2) << "a block has no role";
    const bool has_halves = work.has_halves && has_few_blocks(resident);
    EXPECT_EQ(policy.halves, has_halves && resident.blocks() >= kLeastThreadBlocksOfHalves ? 2 : 1);
    if (policy.halves == 2) expect_halves(policy);
    EXPECT_TRUE(work.receives || !policy.roles.rankers_receive);
    if (work.sends)
      expect_senders(resident, work, policy);
    else
      EXPECT_EQ(policy.roles.rankers + policy.roles.senders, 0);
    if (work.receives) expect_receivers(work, policy);
  }
}

// Each block sends or receives, and both have enough.
void expect_parts(const Resident& resident, const Work& work, const CombinePolicy& policy) {
  const CombineRoles& roles = policy.roles;
  EXPECT_TRUE(work.sends && work.receives && work.all_near);
  EXPECT_TRUE(work.ranks > 1 || roles.rings) << "no links to fill";
  EXPECT_EQ(policy.blocks, resident.blocks()) << "blocks are left unused";
  EXPECT_EQ(roles.first_receiver, roles.senders) << "a block does both, or nothing";
  EXPECT_GE(roles.senders, 1);
  const bool few = roles.rings && has_few_blocks(resident);
  EXPECT_LE(roles.senders, few ? policy.blocks - 1 : 2 * policy.blocks / 3) << "too few blocks are left to receive";
  EXPECT_TRUE(work.has_rings || !roles.rings) << "no such kernel";
  EXPECT_TRUE(roles.rings || !work.has_rings || 2 * resident.blocks() > resident.multiprocessors) << "blocks are few";
  EXPECT_FALSE(roles.rings && roles.looks_ahead) << "rows would be asked for twice";
  EXPECT_GE(roles.send_team_threads, kLeastTeamThreads);
  EXPECT_GE(roles.receive_team_threads,
            few ? kLeastTeamThreads : least_sum_threads(work, policy.blocks - roles.senders));
  const std::int64_t teams = std::int64_t{roles.senders} * (kThreads / roles.send_team_threads);
  const std::int64_t made_at_once = 2 * teams * work.hidden;
  EXPECT_TRUE(static_cast<double>(made_at_once) <= most_bytes_summed(resident, work) || roles.senders == 1)
      << "more than the links carry at once";
}

TEST(CudaPolicy, HoldsForAnyCombine) {
  RandomCalls calls;
  for (int i = 0; i < kTries && !testing::Test::HasFailure(); ++i) {
    const Resident resident = calls.resident();
    const Work work = calls.work();
    const CombinePolicy policy = combine_policy(resident, work);
    SCOPED_TRACE(said(resident, work) << ": " << policy);
    const CombineRoles& roles = policy.roles;
    const int results = work.sends ? std::max(work.arrivals, kLeastReceivers) : 0;
    const int tokens = work.receives ? std::max(work.num_tokens, 1) : 0;
    EXPECT_LE(policy.blocks,
              std::min(resident.multiprocessors * resident.blocks_per_multiprocessor, resident.most_blocks));
    const bool apart = results + tokens <= resident.blocks();  // a block for each result and token
    const bool parted = !apart && parts_roles(resident, work, resident.blocks());
    EXPECT_EQ(roles.direct, parted || apart);
    EXPECT_TRUE(parted || !roles.rings) << "the buffers are where the rings would be";
    if (parted) {
      expect_parts(resident, work, policy);
      continue;
    }
    if (roles.direct) {
      EXPECT_EQ(roles.senders, results);
      EXPECT_EQ(roles.first_receiver, roles.senders) << "a block does both";
      EXPECT_GE(policy.blocks - roles.senders, tokens);
      EXPECT_LE(policy.blocks - roles.senders, kMostTeamBlocks * tokens) << "a block has nothing to do";
    } else {
      EXPECT_EQ(roles.senders, work.sends ? policy.blocks : 0);
      EXPECT_EQ(roles.first_receiver, 0);
      EXPECT_LE(policy.blocks, std::max(results, tokens)) << "a block has nothing to do";
      EXPECT_GE(policy.blocks, std::min(resident.blocks(), std::max(results, tokens))) << "blocks are left unused";
    }
    const int turns = std::max(results, likely_turns(work));
    if (work.sends)
      expect_largest_teams(roles.senders, roles.send_team_threads, turns, most_result_teams(roles.senders, work));
    const int receivers = policy.blocks - roles.first_receiver;
    EXPECT_GE(roles.receive_team_threads, kLeastSumThreads);
    if (roles.receive_team_threads > kThreads)
      EXPECT_GE(receivers, kMostTeamBlocks * tokens);
    else if (roles.receive_team_threads > kLeastSumThreads)
      expect_largest_teams(receivers, roles.receive_team_threads, tokens, kMostTeams);
  }
}

}  // namespace
}  // namespace ferry::cuda
