// The launch policy of a dispatch: how many blocks build the routing table, send and receive, in teams of what size.
//
//   regime        when (the first that holds)              blocks that send
//   receive_only  the call does not send                   none
//   few_blocks    two blocks share a thread block          one of each thread block
//   many_tokens   stores can fill the links                as many as fill them, by stores
//   few_blocks    at most half of the multiprocessors      their share of the time, by bulk copies
//   one_rank      one rank                                 their share of the time, or as few_tokens and some_tokens
//   remote        a rank is reached by puts                as few_tokens and some_tokens
//   few_tokens    at most 88 tokens                        one for each token, by bulk copies
//   some_tokens   otherwise                                44, 66 or 88, by bulk copies
#pragma once

#include <algorithm>

#include "cuda/policy/dispatch_routing.h"

namespace ferry::cuda {

// ---- what all regimes share

// Blocks for the padding of groups. A block marks the padding of one group after another and zeroes its scales in
// tiles, which takes longer than a few tokens. So few tokens get more blocks than they keep busy.
inline constexpr int kMaxPaddingBlocks = 64;  // log: Padding of a few tokens; cuda_2xh200.jsonl:63-95
constexpr int padding_blocks(const Problem& problem) {
  return std::min({kMaxPaddingBlocks, problem.groups, problem.num_tokens * problem.top_k});
}

// Adds receivers to a policy that has all other roles: as many as there is work and room for.
constexpr DispatchPolicy with_receivers(const DeviceLimits& limits, const Problem& problem, DispatchPolicy policy) {
  DispatchRoles& roles = policy.roles;
  const int busy = roles.routing_blocks + roles.senders;
  const int most = policy.blocks_per_cta * std::max(1, limits.blocks());
  const int wanted = std::max(problem.arrivals + padding_blocks(problem), kMinReceivers);
  policy.blocks = busy + (problem.receives ? std::min(most - busy, wanted) : 0);
  // A thread block has at most one logical block that sends, and one that routes.
  if (policy.blocks_per_cta == 2)
    policy.blocks = 2 * std::max({roles.senders, roles.routing_blocks, (policy.blocks + 1) / 2});
  const int receivers = problem.receives ? policy.blocks - busy : 0;
  roles.routing_blocks_receive = problem.receives && routing_blocks_receive_too(receivers, roles.routing_blocks);
  const int all_receivers = receivers + (roles.routing_blocks_receive ? roles.routing_blocks : 0);
  const int tokens = problem.ranks * std::max(problem.num_tokens, 1);
  // Half of the padding blocks stay without a token: tokens arrive before padding is marked.
  roles.receive_team_threads =
      warpwise_team_threads_for(std::max(1, all_receivers), tokens, padding_blocks(problem) / 2);
  roles.receive_teams = teams_serving_all_ranks(all_receivers, roles.receive_team_threads, problem.ranks, tokens);
  return policy;
}

// A message of less than two bytes for three columns. Making it takes as long as a larger one, and the links are less
// full, so twice as many blocks send (log: Whole lines, First versions).
constexpr bool has_small_messages(const Problem& problem) { return 2 * problem.hidden > 3 * problem.message_bytes; }

// Teams of a block of `senders`. A team of one warp takes longer for each message, so only where it has several.
constexpr int max_teams_per_block(const Problem& problem, int senders) {
  return problem.num_tokens >= 2 * kMostTeams * senders ? problem.buffer_teams
                                                        : std::min(problem.buffer_teams, kMostTeams / 2);
}

// Messages leave by bulk copies. At most `max_senders` blocks send, and `max_teams` teams of them.
constexpr DispatchPolicy bulk_dispatch(const DeviceLimits& limits, const Problem& problem, int max_senders,
                                       int max_teams) {
  const RoutingBlocks routing = routing_blocks(limits, problem);
  const int senders = std::max(1, std::min(max_senders, room_to_send(limits, problem)));
  const int teams = std::min(max_teams_per_block(problem, senders), std::max(1, max_teams / senders));
  return with_receivers(limits, problem,
                        {.roles = {.routing_blocks = routing.blocks,
                                   .senders = senders,
                                   .send_team_threads = team_threads_for(senders, problem.num_tokens, teams),
                                   .counts_apart = routing.counts_apart},
                         .pdl = limits.is_exclusive,
                         .blocks_per_cta = logical_blocks_per_cta(limits, problem)});
}

// ---- receive_only
constexpr DispatchPolicy receive_only_dispatch(const DeviceLimits& limits, const Problem& problem) {
  return with_receivers(limits, problem,
                        {.pdl = limits.is_exclusive, .blocks_per_cta = logical_blocks_per_cta(limits, problem)});
}

// ---- few_tokens, some_tokens, remote: bulk copies, until so many blocks send that they crowd the links.
//   kSenders, kSendersOfMany   a third and half of an H200's multiprocessors: log, First versions and The scales kernel
//   kMinTokensOfMany           "kept from 177 tokens on": log, The scales kernel, last table
//   kMaxSendTeams              four teams of 66 blocks: log, The scales kernel, last table (88 blocks of 8 were slower)
inline constexpr int kSenders = 44;
inline constexpr int kSendersOfMany = 66;
inline constexpr int kMinTokensOfMany = 177;
inline constexpr int kMaxTokensOfOneSenderEach = 2 * kSenders;  // one token each crowds nothing
inline constexpr int kMaxSendTeams = 264;

constexpr int max_bulk_senders(const Problem& problem) {
  if (problem.num_tokens <= kMaxTokensOfOneSenderEach) return std::max(1, problem.num_tokens);
  if (has_small_messages(problem)) return 2 * kSenders;
  return problem.num_tokens < kMinTokensOfMany ? kSenders : kSendersOfMany;
}
constexpr int max_bulk_teams(const Problem& problem) { return (has_small_messages(problem) ? 2 : 1) * kMaxSendTeams; }

constexpr DispatchPolicy few_tokens_dispatch(const DeviceLimits& limits, const Problem& problem) {
  return bulk_dispatch(limits, problem, std::max(1, problem.num_tokens), max_bulk_teams(problem));
}
constexpr DispatchPolicy some_tokens_dispatch(const DeviceLimits& limits, const Problem& problem) {
  return bulk_dispatch(limits, problem, max_bulk_senders(problem), max_bulk_teams(problem));
}
constexpr DispatchPolicy remote_dispatch(const DeviceLimits& limits, const Problem& problem) {
  return some_tokens_dispatch(limits, problem);
}

// ---- many_tokens: messages leave by stores. The links take stores sooner than bulk copies, but a team waits until its
// message has arrived, so each team needs more than one. What is sent beyond a full link waits there, and so do the
// signals behind it. Where few teams fill the links, since messages are large or go to many ranks, too few would
// encode.
//   kMaxBytesStored            log, Stores: 75 blocks of 4 teams for 7392 bytes, 65 of 8 for 4224
//                              (cuda_4xh200.jsonl:106-129; bulk copies: 82-105; floor_4xh200.jsonl:1-66)
//   kMinStoringSenders         the fewest blocks that were tried (33 to 154): log, Stores
//   kMaxStoringSenders         88 blocks: log, Hundreds of tokens on two GPUs, second table
//   kMaxStoringSendersOfSmall  132 blocks of 4 teams for NVFP4: log, Stores
inline constexpr double kMaxBytesStored = 6e6;  // in flight to other ranks
inline constexpr int kMinStoringSenders = 33;
inline constexpr int kMaxStoringSenders = 2 * kSenders;
inline constexpr int kMaxStoringSendersOfSmall = 3 * kSenders;

struct StoringSenders {
  int blocks = 0;  // none: bulk copies are better
  int teams = 1;   // of a block
};
constexpr StoringSenders storing_senders(const Problem& problem, int room) {
  if (problem.has_remote_ranks || problem.ranks < 2 || problem.message_bytes == 0) return {};
  const bool small = has_small_messages(problem);
  const double most = small ? kMaxStoringSendersOfSmall : kMaxStoringSenders;
  const double teams = kMaxBytesStored / (problem.message_bytes * expected_peers(problem));
  const int of_block = !small && teams > 4 * most && problem.num_tokens >= 16 * most ? 8 : 4;
  const int blocks = static_cast<int>(std::min(teams / of_block, most));
  const bool fills_links = blocks >= kMinStoringSenders && 2 * problem.num_tokens >= 3 * blocks * of_block;
  return fills_links && blocks <= room && of_block <= problem.buffer_teams ? StoringSenders{blocks, of_block}
                                                                           : StoringSenders{};
}

constexpr DispatchPolicy many_tokens_dispatch(const DeviceLimits& limits, const Problem& problem) {
  const RoutingBlocks routing = routing_blocks(limits, problem);
  const StoringSenders storing = storing_senders(problem, room_to_send(limits, problem));
  return with_receivers(limits, problem,
                        {.roles = {.routing_blocks = routing.blocks,
                                   .senders = storing.blocks,
                                   .send_team_threads = kThreads / storing.teams,
                                   .stores = true,
                                   .counts_apart = routing.counts_apart},
                         .pdl = limits.is_exclusive});
}

// ---- few_blocks: every block has a multiprocessor, so room_to_send gives the senders their share of the time, or one
// logical block of each thread block (dispatch_routing.h has the constants).
constexpr DispatchPolicy few_blocks_dispatch(const DeviceLimits& limits, const Problem& problem) {
  return some_tokens_dispatch(limits, problem);
}

// ---- one_rank: there are no links to crowd. Where sending takes much of the time, the bytes of messages that are
// being made are limited, and of many tokens the senders are their share of the time, one for each multiprocessor at
// most.
//   all: log, One rank; cuda_1xh200.jsonl:38-73 (before: 1-37)
inline constexpr double kTimeOfSentByteOfOneRank = 1.7;
inline constexpr double kMinSendingTime = 0.4;  // of all; below, writing rows bounds the dispatch
inline constexpr int kMinTokensToSendByTime = 2048;
inline constexpr double kMaxBytesBeingMade = 4.5e6;

constexpr DispatchPolicy one_rank_dispatch(const DeviceLimits& limits, const Problem& problem) {
  const int by_time = senders_by_time(limits.blocks(), problem, kTimeOfSentByteOfOneRank);
  if (by_time < kMinSendingTime * limits.blocks()) return some_tokens_dispatch(limits, problem);
  const int senders = problem.num_tokens >= kMinTokensToSendByTime ? std::min(by_time, limits.multiprocessors)
                                                                   : max_bulk_senders(problem);
  return bulk_dispatch(limits, problem, senders,
                       static_cast<int>(kMaxBytesBeingMade / std::max(1, problem.message_bytes)));
}

// ---- the choice

constexpr Regime dispatch_regime(const DeviceLimits& limits, const Problem& problem) {
  if (!problem.sends) return Regime::receive_only;
  if (logical_blocks_per_cta(limits, problem) == 2) return Regime::few_blocks;
  if (storing_senders(problem, room_to_send(limits, problem)).blocks > 0) return Regime::many_tokens;
  if (has_few_blocks(limits)) return Regime::few_blocks;
  if (problem.ranks == 1) return Regime::one_rank;
  if (problem.has_remote_ranks) return Regime::remote;
  return problem.num_tokens <= kMaxTokensOfOneSenderEach ? Regime::few_tokens : Regime::some_tokens;
}

constexpr DispatchPolicy policy_of_regime(Regime regime, const DeviceLimits& limits, const Problem& problem) {
  switch (regime) {
    case Regime::receive_only:
      return receive_only_dispatch(limits, problem);
    case Regime::few_tokens:
      return few_tokens_dispatch(limits, problem);
    case Regime::some_tokens:
      return some_tokens_dispatch(limits, problem);
    case Regime::many_tokens:
      return many_tokens_dispatch(limits, problem);
    case Regime::few_blocks:
      return few_blocks_dispatch(limits, problem);
    case Regime::one_rank:
      return one_rank_dispatch(limits, problem);
    case Regime::remote:
      return remote_dispatch(limits, problem);
  }
  return {};
}

// Behind a kernel that only sends come a kernel of token lists and one that lays rows out. Their blocks wait on the
// device while messages leave. With few tokens they get in the way of the few blocks that send (log: Kernels behind a
// sending half), and with few blocks they would take multiprocessors that a caller's kernel has.
constexpr DispatchPolicy dispatch_policy(const DeviceLimits& limits, const Problem& problem) {
  const Regime regime = dispatch_regime(limits, problem);
  DispatchPolicy policy = policy_of_regime(regime, limits, problem);
  const bool may_trigger = !problem.receives && policy.pdl && regime != Regime::few_tokens;
  policy.roles.triggers_at_start = may_trigger && regime != Regime::few_blocks && !has_few_blocks(limits);
  return policy;
}

}  // namespace ferry::cuda
