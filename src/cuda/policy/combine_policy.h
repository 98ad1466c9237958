// The launch policy of a combine: how many blocks send results, and how many sum what has come.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ferry/detail/cuda/policy/tuning.h"

namespace ferry::cuda {

// Threads that sum a token from all ranks: smaller teams finish it late, larger ones have too few rows on their way.
inline constexpr int kLeastSumThreads = 128;
inline constexpr int kColumnsOfSumThread = 32;
// Of `blocks` that do nothing else: a thread has so many columns at least, where there is only one rank's result to
// take more; or a token a warp, where each has one of its own.
constexpr int least_sum_threads(const Problem& problem, int blocks) {
  const bool is_short = problem.hidden <= kColumnsOfSumThread * kLeastSumThreads;
  if (is_short && problem.num_tokens <= blocks * kMostTeams) return kLeastTeamThreads;
  return problem.ranks == 1 || problem.hidden < kColumnsOfSumThread * kLeastSumThreads ? kLeastSumThreads / 2
                                                                                       : kLeastSumThreads;
}

// That ask for rows ahead: those of many more are more than the L2 cache holds, and are gone when they are wanted.
inline constexpr int kMostPrefetchingTeams = 264;
constexpr bool prefetches(const CombineRoles& roles, int results) {
  const int teams = roles.senders * (kThreads / roles.send_team_threads);
  return teams <= kMostPrefetchingTeams && 2 * teams <= results;
}

// Bytes of results that are on their way to others at once: more of them wait in the links for each other, and so do
// the signals behind them.
inline constexpr int kMostBytesLeaving = 10 << 20;
constexpr int most_result_teams(int blocks, const Problem& problem) {
  const std::int64_t leaving =
      std::int64_t{blocks} * 2 * problem.hidden * (problem.ranks - 1) / problem.ranks;  // of a team each
  int teams = problem.buffer_teams;
  while (teams > 1 && leaving * teams > kMostBytesLeaving) teams /= 2;
  return teams;
}

// Turns of those who send results: they look at every token of every rank. Those that have nothing to send are soon
// over, so where they are more than half, only the others count.
constexpr int likely_turns(const Problem& problem) {
  const int tokens = problem.ranks * problem.num_tokens;
  return 2 * problem.arrivals >= tokens ? std::max(tokens, problem.arrivals) : problem.arrivals;
}

// Rows come by way of shared memory where blocks are few, as each of them then has to take more than registers hold
// loads for; and where results are of many rows, as then these take the time and not the links.
inline constexpr double kManyRowsOfResult = 3;
constexpr double likely_results(const Problem& problem) {
  return problem.exact ? problem.top_k : likely_ranks(problem);
}
constexpr bool is_pipelined(const DeviceLimits& limits, const Problem& problem) {
  return problem.has_pipeline &&
         (has_few_blocks(limits) || likely_rows(problem) > kManyRowsOfResult * likely_results(problem));
}

// A world of one rank has no links to fill. There it is worth it where rows come by way of shared memory, which those
// that send then have to themselves, and blocks are few or results more than half of an L2 cache.
inline constexpr double kManyBytesAlone = 25e6;
constexpr bool parts_alone(const DeviceLimits& limits, const Problem& problem) {
  return is_pipelined(limits, problem) &&
         (has_few_blocks(limits) || 2.0 * problem.hidden * problem.arrivals >= kManyBytesAlone);
}

// Many results: two thirds of the blocks send at most, as many teams as fill the links, and the others receive. Results
// are made in their slots, as stores of many threads are there sooner than bulk copies.
inline constexpr double kMostBytesSummed = 9e6;       // of results that are made at once
inline constexpr double kMostBytesSummedAlone = 5e6;  // by many blocks, of which more have too little room
inline constexpr int kManyResults = 6;                // for each block
constexpr bool parts_roles(const DeviceLimits& limits, const Problem& problem, int most) {
  return problem.sends && problem.receives && problem.all_direct &&
         (problem.ranks > 1 || parts_alone(limits, problem)) && most >= 3 &&
         likely_turns(problem) >= kManyResults * most;
}
constexpr double most_bytes_summed(const DeviceLimits& limits, const Problem& problem) {
  return problem.ranks == 1 && !has_few_blocks(limits) ? kMostBytesSummedAlone : kMostBytesSummed;
}

// Of few blocks those that send are as many as their part of what all of them read and write: of a token all rows and
// all results, and then all results and a sum.
constexpr int sending_part(int blocks, const Problem& problem) {
  const double results = likely_results(problem);
  const double sent = likely_rows(problem) + results;
  return static_cast<int>(blocks * sent / (sent + results + 1));
}

// Blocks of a kernel that is launched while this one ends go where there is room, and are not dealt out evenly: some
// multiprocessors then have two blocks of a dispatch that send. In small rounds that costs less than waiting does, and
// few blocks have a multiprocessor each anyway.
inline constexpr int kManyResultsToTriggerLate = 2048;
constexpr bool triggers_late(const DeviceLimits& limits, const Problem& problem) {
  return !has_few_blocks(limits) && problem.arrivals >= kManyResultsToTriggerLate;
}

constexpr CombinePolicy parted_combine_policy(const DeviceLimits& limits, const Problem& problem) {
  const int most = limits.blocks();
  const bool pipelined = is_pipelined(limits, problem);
  const bool few = pipelined && has_few_blocks(limits);
  const int most_senders = few ? std::clamp(sending_part(most, problem), 1, most - 1) : 2 * most / 3;
  const int wanted =
      std::max(1, static_cast<int>(most_bytes_summed(limits, problem) / (2 * std::max(1, problem.hidden))));
  int teams = 1;
  while (teams < kMostTeams && most_senders * teams < wanted) teams *= 2;
  CombinePolicy policy;
  policy.pdl = limits.alone;
  policy.blocks = most;
  policy.roles.senders = policy.roles.first_receiver = std::clamp(wanted / teams, 1, most_senders);
  policy.roles.send_team_threads = kThreads / teams;
  const int receivers = most - policy.roles.senders;
  policy.roles.receive_team_threads = std::max(few ? kLeastTeamThreads : least_sum_threads(problem, receivers),
                                               warpwise_team_threads_for(receivers, problem.num_tokens));
  policy.roles.in_place = true;
  policy.roles.pipelined = pipelined;
  policy.roles.prefetches = !pipelined && prefetches(policy.roles, problem.arrivals);
  policy.roles.triggers_late = triggers_late(limits, problem);
  return policy;
}

constexpr CombinePolicy combine_policy(const DeviceLimits& limits, const Problem& problem) {
  const int most = std::max(1, limits.blocks());
  CombinePolicy policy;
  policy.pdl = limits.alone;
  CombineRoles& roles = policy.roles;
  const int to_send = problem.sends ? std::max(problem.arrivals, kLeastReceivers) : 0;
  const int tokens = problem.receives ? std::max(problem.num_tokens, 1) : 0;
  const bool apart = to_send + tokens <= most;
  if (!apart && parts_roles(limits, problem, most)) return parted_combine_policy(limits, problem);
  const int to_receive = apart ? std::min(most - to_send, kMostTeamBlocks * tokens) : tokens;
  policy.blocks = std::min(most, apart ? to_send + to_receive : std::max(to_send, to_receive));
  roles.senders = problem.sends ? (apart ? to_send : policy.blocks) : 0;
  roles.first_receiver = apart ? roles.senders : 0;
  const int turns = std::max(to_send, problem.sends ? likely_turns(problem) : 0);
  roles.send_team_threads =
      team_threads_for(std::max(1, roles.senders), turns, most_result_teams(roles.senders, problem));
  roles.receive_team_threads =
      std::max(kLeastSumThreads, warpwise_team_threads_for(policy.blocks - roles.first_receiver, tokens));
  roles.in_place = apart;
  roles.prefetches = prefetches(roles, to_send);
  roles.triggers_late = triggers_late(limits, problem);
  return policy;
}

}  // namespace ferry::cuda
