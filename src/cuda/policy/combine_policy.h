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
constexpr int least_sum_threads(const Work& work, int blocks) {
  const bool is_short = work.hidden <= kColumnsOfSumThread * kLeastSumThreads;
  if (is_short && work.num_tokens <= blocks * kMostTeams) return kLeastTeamThreads;
  return work.ranks == 1 || work.hidden < kColumnsOfSumThread * kLeastSumThreads ? kLeastSumThreads / 2
                                                                                 : kLeastSumThreads;
}

// That ask for rows ahead: those of many more are more than the L2 cache holds, and are gone when they are wanted.
inline constexpr int kMostTeamsAhead = 264;
constexpr bool looks_ahead(const CombineRoles& roles, int results) {
  const int teams = roles.senders * (kThreads / roles.send_team_threads);
  return teams <= kMostTeamsAhead && 2 * teams <= results;
}

// Bytes of results that are on their way to others at once: more of them wait in the links for each other, and so do
// the signals behind them.
inline constexpr int kMostBytesLeaving = 10 << 20;
constexpr int most_result_teams(int blocks, const Work& work) {
  const std::int64_t leaving =
      std::int64_t{blocks} * 2 * work.hidden * (work.ranks - 1) / work.ranks;  // of a team each
  int teams = work.buffer_teams;
  while (teams > 1 && leaving * teams > kMostBytesLeaving) teams /= 2;
  return teams;
}

// Turns of those who send results: they look at every token of every rank. Those that have nothing to send are soon
// over, so where they are more than half, only the others count.
constexpr int likely_turns(const Work& work) {
  const int tokens = work.ranks * work.num_tokens;
  return 2 * work.arrivals >= tokens ? std::max(tokens, work.arrivals) : work.arrivals;
}

// Rows come by way of shared memory where blocks are few, as each of them then has to take more than registers hold
// loads for; and where results are of many rows, as then these take the time and not the links.
inline constexpr double kManyRowsOfResult = 3;
constexpr double likely_results(const Work& work) { return work.exact ? work.top_k : likely_ranks(work); }
constexpr bool takes_rings(const Resident& resident, const Work& work) {
  return work.has_rings && (has_few_blocks(resident) || likely_rows(work) > kManyRowsOfResult * likely_results(work));
}

// A world of one rank has no links to fill. There it is worth it where rows come by way of shared memory, which those
// that send then have to themselves, and blocks are few or results more than half of an L2 cache.
inline constexpr double kManyBytesAlone = 25e6;
constexpr bool parts_alone(const Resident& resident, const Work& work) {
  return takes_rings(resident, work) &&
         (has_few_blocks(resident) || 2.0 * work.hidden * work.arrivals >= kManyBytesAlone);
}

// Many results: two thirds of the blocks send at most, as many teams as fill the links, and the others receive. Results
// are made in their slots, as stores of many threads are there sooner than bulk copies.
inline constexpr double kMostBytesSummed = 9e6;       // of results that are made at once
inline constexpr double kMostBytesSummedAlone = 5e6;  // by many blocks, of which more have too little room
inline constexpr int kManyResults = 6;                // for each block
constexpr bool parts_roles(const Resident& resident, const Work& work, int most) {
  return work.sends && work.receives && work.all_near && (work.ranks > 1 || parts_alone(resident, work)) && most >= 3 &&
         likely_turns(work) >= kManyResults * most;
}
constexpr double most_bytes_summed(const Resident& resident, const Work& work) {
  return work.ranks == 1 && !has_few_blocks(resident) ? kMostBytesSummedAlone : kMostBytesSummed;
}

// Of few blocks those that send are as many as their part of what all of them read and write: of a token all rows and
// all results, and then all results and a sum.
constexpr int sending_part(int blocks, const Work& work) {
  const double results = likely_results(work);
  const double sent = likely_rows(work) + results;
  return static_cast<int>(blocks * sent / (sent + results + 1));
}

// Blocks of a kernel that is launched while this one ends go where there is room, and are not dealt out evenly: some
// multiprocessors then have two blocks of a dispatch that send. In small rounds that costs less than waiting does, and
// few blocks have a multiprocessor each anyway.
inline constexpr int kManyResultsToHoldNext = 2048;
constexpr bool holds_next(const Resident& resident, const Work& work) {
  return !has_few_blocks(resident) && work.arrivals >= kManyResultsToHoldNext;
}

constexpr CombinePolicy parted_combine_policy(const Resident& resident, const Work& work) {
  const int most = resident.blocks();
  const bool rings = takes_rings(resident, work);
  const bool few = rings && has_few_blocks(resident);
  const int most_senders = few ? std::clamp(sending_part(most, work), 1, most - 1) : 2 * most / 3;
  const int wanted = std::max(1, static_cast<int>(most_bytes_summed(resident, work) / (2 * std::max(1, work.hidden))));
  int teams = 1;
  while (teams < kMostTeams && most_senders * teams < wanted) teams *= 2;
  CombinePolicy policy;
  policy.early = resident.alone;
  policy.blocks = most;
  policy.roles.senders = policy.roles.first_receiver = std::clamp(wanted / teams, 1, most_senders);
  policy.roles.send_team_threads = kThreads / teams;
  const int receivers = most - policy.roles.senders;
  policy.roles.receive_team_threads = std::max(few ? kLeastTeamThreads : least_sum_threads(work, receivers),
                                               loose_team_threads_for(receivers, work.num_tokens));
  policy.roles.direct = true;
  policy.roles.rings = rings;
  policy.roles.looks_ahead = !rings && looks_ahead(policy.roles, work.arrivals);
  policy.roles.holds_next = holds_next(resident, work);
  return policy;
}

constexpr CombinePolicy combine_policy(const Resident& resident, const Work& work) {
  const int most = std::max(1, resident.blocks());
  CombinePolicy policy;
  policy.early = resident.alone;
  CombineRoles& roles = policy.roles;
  const int to_send = work.sends ? std::max(work.arrivals, kLeastReceivers) : 0;
  const int tokens = work.receives ? std::max(work.num_tokens, 1) : 0;
  const bool apart = to_send + tokens <= most;
  if (!apart && parts_roles(resident, work, most)) return parted_combine_policy(resident, work);
  const int to_receive = apart ? std::min(most - to_send, kMostTeamBlocks * tokens) : tokens;
  policy.blocks = std::min(most, apart ? to_send + to_receive : std::max(to_send, to_receive));
  roles.senders = work.sends ? (apart ? to_send : policy.blocks) : 0;
  roles.first_receiver = apart ? roles.senders : 0;
  const int turns = std::max(to_send, work.sends ? likely_turns(work) : 0);
  roles.send_team_threads = team_threads_for(std::max(1, roles.senders), turns, most_result_teams(roles.senders, work));
  roles.receive_team_threads =
      std::max(kLeastSumThreads, loose_team_threads_for(policy.blocks - roles.first_receiver, tokens));
  roles.direct = apart;
  roles.looks_ahead = looks_ahead(roles, to_send);
  roles.holds_next = holds_next(resident, work);
  return policy;
}

}  // namespace ferry::cuda
