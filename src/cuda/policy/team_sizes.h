// Threads of a team, which works on one token at a time. Few tokens get large teams, since the steps of one token
// follow each other. Many tokens get small teams, so that more of them are in flight.
#pragma once

#include <algorithm>
#include <numeric>

#include "ferry/detail/cuda/state/block_roles.h"

namespace ferry::cuda {

constexpr int team_threads_for(int blocks, int tokens, int max_teams = kMostTeams) {
  int teams = 1;
  while (2 * teams <= max_teams && blocks * teams < tokens) teams *= 2;
  return kThreads / teams;
}

// The same for teams whose warps do not synchronise. Such a team may span several blocks where there are more blocks
// than tokens. `others`: so many of the blocks are left for other work.
inline constexpr int kMaxTeamBlocks = 2;  // 8 columns for each thread are 8192; not measured apart
constexpr int warpwise_team_threads_for(int blocks, int tokens, int others = 0) {
  int span = 1;
  while (2 * span <= kMaxTeamBlocks && 2 * span * tokens <= blocks - others) span *= 2;
  return span > 1 ? span * kThreads : team_threads_for(blocks, tokens);
}

// Teams of `blocks` that share the tokens of all ranks round robin. Their number has no factor in common with the
// ranks. Otherwise a team would always serve the same rank, and teams that serve the own rank would finish first.
constexpr int teams_serving_all_ranks(int blocks, int team_threads, int ranks, int tokens) {
  int teams = team_threads > kThreads ? blocks / (team_threads / kThreads) : blocks * (kThreads / team_threads);
  if (tokens <= teams) return teams;
  while (std::gcd(teams, ranks) != 1) --teams;
  return teams;
}

// Teams of a block that have a thread for each destination of a message.
constexpr int teams_with_threads(int destinations) {
  int teams = kMostTeams;
  while (kThreads / teams < destinations) teams /= 2;
  return teams;
}

// Other ranks may have more tokens than this rank, so there are at least as many receiving teams. Not measured apart.
inline constexpr int kMinReceivers = 32;

}  // namespace ferry::cuda
