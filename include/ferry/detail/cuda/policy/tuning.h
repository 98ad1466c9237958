// How many blocks and threads a kernel gets, and which roles its blocks play. Plain values that compare.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ostream>

#include "ferry/portable.h"

namespace ferry::cuda {

inline constexpr int kThreads = 512;   // of a block
inline constexpr int kMostTeams = 16;  // of a block
inline constexpr int kLeastTeamThreads = kThreads / kMostTeams;

// Blocks of a dispatch: the first `routing_blocks` rank the routing, a share of it each; where `counts_apart`, the last
// of them has no share, and sends the counts. The next `senders` send. The others lay arrivals out, and the
// routing_blocks too, once they have ranked, where `routing_blocks_receive`.
struct DispatchRoles {
  int routing_blocks = 0;
  int senders = 0;
  bool routing_blocks_receive = false;
  int send_team_threads = kThreads;
  int receive_team_threads = kThreads;
  int receive_teams = 0;  // that share the arrivals
  bool stores = false;    // messages leave by stores of all of a team's threads, not by bulk copies
  bool counts_apart = false;
  FERRY_HD constexpr int table_blocks() const { return routing_blocks - (counts_apart ? 1 : 0); }
  friend constexpr bool operator==(const DispatchRoles&, const DispatchRoles&) = default;
};

// Blocks of a combine: those below `senders` send, those from `first_receiver` on receive; those that do both sum,
// between two sends, what has come.
struct CombineRoles {
  int senders = 0;
  int first_receiver = 0;
  int send_team_threads = kThreads;
  int receive_team_threads = kThreads;
  bool in_place = false;       // results are made in their slots, not in a buffer first
  bool prefetches = false;     // a team asks for the rows of its next token
  bool pipelined = false;      // rows come by way of shared memory (row_pipeline.cuh), where no buffer is
  bool triggers_late = false;  // the next kernel waits until every block of this one has ended
  friend constexpr bool operator==(const CombineRoles&, const CombineRoles&) = default;
};

// I21. `pdl`: its blocks may take the room that the kernel before it leaves, while that one still waits for other
// ranks: not where another exchange's kernel may need that room, for which they wait.
template <class Roles>
struct LaunchPolicy {
  int blocks = 0;
  Roles roles;
  bool pdl = true;
  int blocks_per_cta =
      1;  // 2: a thread block is two of `blocks`, its blocks_per_cta, so that they share a multiprocessor
  constexpr int thread_blocks() const { return blocks / blocks_per_cta; }
  friend constexpr bool operator==(const LaunchPolicy&, const LaunchPolicy&) = default;
};
using DispatchPolicy = LaunchPolicy<DispatchRoles>;
using CombinePolicy = LaunchPolicy<CombineRoles>;

inline std::ostream& operator<<(std::ostream& out, const DispatchPolicy& p) {
  return out << p.blocks << (p.blocks_per_cta == 1 ? " blocks: " : " blocks_per_cta: ") << p.roles.routing_blocks
             << " rank" << (p.roles.counts_apart ? ", one of them counts, " : ", ") << p.roles.senders
             << " send in teams of " << p.roles.send_team_threads << (p.roles.stores ? " by stores" : "")
             << ", the others" << (p.roles.routing_blocks_receive ? " and then those that rank" : "") << " receive in "
             << p.roles.receive_teams << " teams of " << p.roles.receive_team_threads << (p.pdl ? "" : ", not pdl");
}
inline std::ostream& operator<<(std::ostream& out, const CombinePolicy& p) {
  return out << p.blocks << " blocks: " << p.roles.senders << " send in teams of " << p.roles.send_team_threads
             << ", from the " << p.roles.first_receiver << "th on they receive in teams of "
             << p.roles.receive_team_threads << (p.roles.in_place ? ", in place" : "")
             << (p.roles.prefetches ? ", prefetching" : "") << (p.roles.pipelined ? ", by pipelined" : "")
             << (p.roles.triggers_late ? ", holding the next kernel" : "") << (p.pdl ? "" : ", not pdl");
}

// Which of a kernel's blocks one is. Where a thread block is two of them, blocks_per_cta 0 send, so that each
// multiprocessor has as much of it as any other; those that rank are blocks_per_cta 1, which have barriers for their
// few teams.
struct LogicalBlock {
  int index;
  int count;
  int half;
};
FERRY_HD constexpr LogicalBlock logical_block_of(int thread_block, int half, int thread_blocks, int routing_blocks) {
  const int behind = half == 0 ? routing_blocks : thread_block < routing_blocks ? 0 : thread_blocks;
  return {behind + thread_block, 2 * thread_blocks, half};
}

// What a kernel can have at once on a device.
struct DeviceLimits {
  int multiprocessors = 0;
  int blocks_per_multiprocessor = 0;
  int most_blocks = 0;  // from the caller's max_blocks, the exchange's `concurrent` and the ranks of the device
  bool alone = true;    // no other exchange's kernels run at the same time
  constexpr int blocks() const { return std::min(multiprocessors * blocks_per_multiprocessor, most_blocks); }
};

// I21. Of a kernel, where those of so many exchanges run at the same time, and wait for each other: together they have
// no more thread blocks than there are multiprocessors. Then one is empty for whoever is still to come, however much of
// it a thread block takes and however many of one the others hold.
constexpr int most_blocks(int multiprocessors, int blocks_per_multiprocessor, int exchanges) {
  return exchanges == 1 ? multiprocessors * blocks_per_multiprocessor : multiprocessors / exchanges;
}

// A multiprocessor for each, and as many are left to others.
constexpr bool has_few_blocks(const DeviceLimits& limits) { return 2 * limits.blocks() <= limits.multiprocessors; }

// What a call has to do. `arrivals`: about how many messages come, and results go; `groups` of rows: those of this
// rank; `parts` of the routing table, which blocks share; `buffer_teams`: as many teams of a block have a buffer;
// `exact`: every row is a result.
struct Problem {
  int ranks = 1;
  int num_tokens = 0;  // of this rank
  int arrivals = 0;
  int parts = 1;
  bool counts_all = false;  // a block that ranks can count all parts (each_counts_all)
  int buffer_teams = 1;
  bool sends = true;
  bool receives = true;
  int hidden = 0;
  int message_bytes = 0;
  int groups = 0;
  int top_k = 1;
  double local_part = 1;  // of a token's experts, those of this world: with skip_a2a, this rank's
  int scale_words = 0;    // of a row that the scales kernel can store, each a sector of its own (scattered_scale_words)
  bool all_direct = true;  // every rank's memory can be stored to
  bool exact = false;
  bool has_pipeline = false;     // the kernels can take such rows by way of shared memory
  bool can_pair_blocks = false;  // two blocks of dispatch can be one thread block
};

// Whether waiters nap between looks: many of them get in each other's way, and in that of what they wait for. A nap
// costs a few tokens a fifth of a microsecond.
inline constexpr int kManyArrivals = 256;
constexpr bool backs_off(const Problem& problem) { return problem.arrivals >= kManyArrivals; }

// Threads of a team, which works on one token at a time. Few tokens get large teams, since the steps of one token
// follow each other; many tokens get small ones, so that more of them are under way.
constexpr int team_threads_for(int blocks, int tokens, int most_teams = kMostTeams) {
  int teams = 1;
  while (2 * teams <= most_teams && blocks * teams < tokens) teams *= 2;
  return kThreads / teams;
}

// The same for teams that need no barrier, and so may be several blocks where there are more of these than tokens.
inline constexpr int kMostTeamBlocks = 2;  // 8 columns for each thread are 8192
// `others`: so many of the blocks have other problem.
constexpr int warpwise_team_threads_for(int blocks, int tokens, int others = 0) {
  int span = 1;
  while (2 * span <= kMostTeamBlocks && 2 * span * tokens <= blocks - others) span *= 2;
  return span > 1 ? span * kThreads : team_threads_for(blocks, tokens);
}

// Teams of `blocks` that share out tokens of all ranks in turn: a number that has no factor in common with the ranks,
// or a team would always serve the same one, and those that serve the own rank would be done first.
constexpr int sharing_teams(int blocks, int team_threads, int ranks, int tokens) {
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

// How many ranks have experts of a token, and how many others it goes to, where all experts are as likely.
constexpr double likely_ranks(const Problem& problem) {
  double none = 1;  // of its experts is a certain rank's
  for (int k = 0; k < problem.top_k; ++k) none *= 1 - 1.0 / problem.ranks;
  return problem.ranks * (1 - none);
}
// Rows that become of it, at all ranks of this world.
constexpr double likely_rows(const Problem& problem) { return problem.top_k * problem.local_part; }
constexpr double likely_others(const Problem& problem) {
  return likely_ranks(problem) * (problem.ranks - 1) / problem.ranks;
}

inline constexpr int kLeastReceivers = 32;  // teams: other ranks may have more tokens than this one

}  // namespace ferry::cuda
