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

// Blocks of a dispatch: the first `rankers` rank the routing, a part of it each; where `counts_apart`, the last of them
// has no part, and sends the counts. The next `senders` send. The others lay arrivals out, and the rankers too, once
// they have ranked, where `rankers_receive`.
struct DispatchRoles {
  int rankers = 0;
  int senders = 0;
  bool rankers_receive = false;
  int send_team_threads = kThreads;
  int receive_team_threads = kThreads;
  int receive_teams = 0;  // that share the arrivals
  bool stores = false;    // messages leave by stores of all of a team's threads, not by bulk copies
  bool counts_apart = false;
  FERRY_HD constexpr int parts() const { return rankers - (counts_apart ? 1 : 0); }
  friend constexpr bool operator==(const DispatchRoles&, const DispatchRoles&) = default;
};

// Blocks of a combine: those below `senders` send, those from `first_receiver` on receive; those that do both sum,
// between two sends, what has come.
struct CombineRoles {
  int senders = 0;
  int first_receiver = 0;
  int send_team_threads = kThreads;
  int receive_team_threads = kThreads;
  bool direct = false;       // results are made in their slots, not in a buffer first
  bool looks_ahead = false;  // a team asks for the rows of its next token
  bool rings = false;        // rows come by way of shared memory (row_ring.cuh), where no buffer is
  friend constexpr bool operator==(const CombineRoles&, const CombineRoles&) = default;
};

// I21. `early`: its blocks may take the room that the kernel before it leaves, while that one still waits for other
// ranks: not where another exchange's kernel may need that room, for which they wait.
template <class Roles>
struct LaunchPolicy {
  int blocks = 0;
  Roles roles;
  bool early = true;
  friend constexpr bool operator==(const LaunchPolicy&, const LaunchPolicy&) = default;
};
using DispatchPolicy = LaunchPolicy<DispatchRoles>;
using CombinePolicy = LaunchPolicy<CombineRoles>;

inline std::ostream& operator<<(std::ostream& out, const DispatchPolicy& p) {
  return out << p.blocks << " blocks: " << p.roles.rankers << " rank"
             << (p.roles.counts_apart ? ", one of them counts, " : ", ") << p.roles.senders << " send in teams of "
             << p.roles.send_team_threads << (p.roles.stores ? " by stores" : "") << ", the others"
             << (p.roles.rankers_receive ? " and then those that rank" : "") << " receive in " << p.roles.receive_teams
             << " teams of " << p.roles.receive_team_threads << (p.early ? "" : ", not early");
}
inline std::ostream& operator<<(std::ostream& out, const CombinePolicy& p) {
  return out << p.blocks << " blocks: " << p.roles.senders << " send in teams of " << p.roles.send_team_threads
             << ", from the " << p.roles.first_receiver << "th on they receive in teams of "
             << p.roles.receive_team_threads << (p.roles.direct ? ", direct" : "")
             << (p.roles.looks_ahead ? ", looking ahead" : "") << (p.roles.rings ? ", by rings" : "")
             << (p.early ? "" : ", not early");
}

// What a kernel can have at once on a device.
struct Resident {
  int multiprocessors = 0;
  int blocks_per_multiprocessor = 0;
  int most_blocks = 0;  // from the caller's max_blocks, the exchange's `concurrent` and the ranks of the device
  bool alone = true;    // no other exchange's kernels run at the same time
  constexpr int blocks() const { return std::min(multiprocessors * blocks_per_multiprocessor, most_blocks); }
};

// I21. Of a kernel, where those of so many exchanges run at the same time, and wait for each other: together they have
// no more blocks than there are multiprocessors. Then one is empty for whoever is still to come, however much of it a
// block takes and however many of a block the others hold.
constexpr int most_blocks(int multiprocessors, int blocks_per_multiprocessor, int exchanges) {
  return exchanges == 1 ? multiprocessors * blocks_per_multiprocessor : multiprocessors / exchanges;
}

// A multiprocessor for each, and as many are left to others.
constexpr bool has_few_blocks(const Resident& resident) { return 2 * resident.blocks() <= resident.multiprocessors; }

// What a call has to do. `arrivals`: about how many messages come, and results go; `groups` of rows: those of this
// rank; `parts` of the routing table want a block each; `buffer_teams`: as many teams of a block have a buffer;
// `exact`: every row is a result.
struct Work {
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
  int scale_words = 0;   // of a row, each of which is a sector of memory of its own (scattered_scale_words)
  bool all_near = true;  // every rank's memory can be stored to
  bool exact = false;
  bool has_rings = false;  // the kernels can take such rows by way of shared memory
};

// Whether waiters nap between looks: many of them get in each other's way, and in that of what they wait for. A nap
// costs a few tokens a fifth of a microsecond.
inline constexpr int kManyArrivals = 256;
constexpr bool naps(const Work& work) { return work.arrivals >= kManyArrivals; }

// Threads of a team, which works on one token at a time. Few tokens get large teams, since the steps of one token
// follow each other; many tokens get small ones, so that more of them are under way.
constexpr int team_threads_for(int blocks, int tokens, int most_teams = kMostTeams) {
  int teams = 1;
  while (2 * teams <= most_teams && blocks * teams < tokens) teams *= 2;
  return kThreads / teams;
}

// The same for teams that need no barrier, and so may be several blocks where there are more of these than tokens.
inline constexpr int kMostTeamBlocks = 2;  // 8 columns for each thread are 8192
// `others`: so many of the blocks have other work.
constexpr int loose_team_threads_for(int blocks, int tokens, int others = 0) {
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

// Blocks that send: a third of an H200's multiprocessors, or half of them where their teams would have more than a
// token each; more of them crowd the links.
inline constexpr int kMostSenders = 44;
inline constexpr int kMostSendersOfMany = 66;
inline constexpr int kManyTokens = 4 * kMostSenders;  // of four warps a team
inline constexpr int kMostSendTeams = 264;            // of all senders of a dispatch, for the same reason

// Twice kMostSenders where a message is less than two bytes for three columns: making it takes as long, and the links
// are less full.
constexpr bool has_small_messages(const Work& work) { return 2 * work.hidden > 3 * work.message_bytes; }
constexpr int most_senders(const Work& work) {
  if (work.num_tokens <= 2 * kMostSenders) return std::max(1, work.num_tokens);
  if (has_small_messages(work)) return 2 * kMostSenders;
  return work.num_tokens <= kManyTokens ? kMostSenders : kMostSendersOfMany;
}
constexpr int most_send_teams(const Work& work) { return (has_small_messages(work) ? 2 : 1) * kMostSendTeams; }

// How many ranks have experts of a token, and how many others it goes to, where all experts are as likely.
constexpr double likely_ranks(const Work& work) {
  double none = 1;  // of its experts is a certain rank's
  for (int k = 0; k < work.top_k; ++k) none *= 1 - 1.0 / work.ranks;
  return work.ranks * (1 - none);
}
constexpr double likely_others(const Work& work) { return likely_ranks(work) * (work.ranks - 1) / work.ranks; }

// Senders whose messages leave by stores. The links take stores sooner than bulk copies, but a team waits until its
// message is there: worth it where it has more than one. So many of them as fill the links: what is sent beyond that
// waits there, and so do the signals behind it. Where these are few blocks, as messages are large or go to many ranks,
// making messages would hold the links up.
struct StoringSenders {
  int blocks = 0;  // none: bulk copies are better
  int teams = 1;   // of a block
};
inline constexpr double kMostBytesStored = 6e6;  // that are on their way to others at once
inline constexpr int kLeastStoringSenders = 33;
inline constexpr int kMostStoringSenders = 2 * kMostSenders;
inline constexpr int kMostStoringSendersOfSmall = 3 * kMostSenders;
// Of `room` blocks.
constexpr StoringSenders storing_senders(const Work& work, int room) {
  if (!work.all_near || work.ranks < 2 || work.message_bytes == 0) return {};
  const bool small = has_small_messages(work);
  const double most = small ? kMostStoringSendersOfSmall : kMostStoringSenders;
  const double teams = kMostBytesStored / (work.message_bytes * likely_others(work));
  const int of_block = !small && teams > 4 * most && work.num_tokens >= 16 * most ? 8 : 4;
  const int blocks = static_cast<int>(std::min(teams / of_block, most));
  const bool enough = blocks >= kLeastStoringSenders && 2 * work.num_tokens >= 3 * blocks * of_block;
  return enough && blocks <= room && of_block <= work.buffer_teams ? StoringSenders{blocks, of_block}
                                                                   : StoringSenders{};
}

inline constexpr int kLeastReceivers = 32;  // teams: other ranks may have more tokens than this one

// Blocks beside those that a few messages keep busy: a block marks the padding of one group after another, and in tiles
// zeroes its scales, which takes longer than a few tokens.
inline constexpr int kMostPaddingBlocks = 64;
constexpr int padding_blocks(const Work& work) {
  return std::min({kMostPaddingBlocks, work.groups, work.num_tokens * work.top_k});
}

// Whether the scales kernel follows a dispatch of `blocks`. It takes time of its own, so only from so many words of
// scales for each block on, and where stores of single words would hold the others up, as messages come faster than
// they are laid out: blocks are few, or the words of a message's rows are many beside its bytes, which the links need
// time for.
inline constexpr int kManyScaleWords = 3000;
inline constexpr int kBytesForScaleWord = 42;  // of a message, that hide a store
constexpr bool stores_scales_last(const Resident& resident, const Work& work, int blocks) {
  const std::int64_t rows = std::int64_t{work.num_tokens} * work.top_k;
  if (!work.receives || rows * work.scale_words < std::int64_t{kManyScaleWords} * blocks) return false;
  const std::int64_t of_a_message = std::int64_t{work.top_k} * work.scale_words * kBytesForScaleWord;
  return blocks < resident.multiprocessors ||
         of_a_message >= std::int64_t{std::min(work.ranks, work.top_k)} * work.message_bytes;
}

// Few entries are sooner counted by every block that ranks than by each its part. `words` of bits, 32 tokens each, fit
// in shared memory.
inline constexpr int kEntriesByAll = 2048;
constexpr bool each_counts_all(int num_tokens, int top_k, int words) {
  return num_tokens <= std::min(32 * words, kEntriesByAll / top_k);
}

// Of few blocks of a dispatch those that send are as many as their part of the time: reading tokens, encoding them and
// writing messages takes longer, for as many bytes, than reading messages and writing rows.
inline constexpr double kTimeOfSentByte = 2.2;
constexpr int dispatching_part(int blocks, const Work& work) {
  const double sent = kTimeOfSentByte * (2.0 * work.hidden + likely_ranks(work) * work.message_bytes);
  const double received = (likely_ranks(work) + work.top_k) * work.message_bytes;
  const double part = blocks * sent / std::max(1.0, sent + received);
  const int whole = static_cast<int>(part);
  return part - whole < 0.5 ? whole : whole + 1;
}

// A warp for a message only where it has several, as it takes longer for each.
constexpr int most_teams_with_buffers(const Work& work, int senders) {
  return work.num_tokens >= 2 * kMostTeams * senders ? work.buffer_teams : std::min(work.buffer_teams, kMostTeams / 2);
}

// Whether so few blocks receive that those that rank do, once they have ranked.
constexpr bool rankers_receive_beside(int receivers, int rankers) { return receivers < 8 * rankers; }

constexpr DispatchPolicy dispatch_policy(const Resident& resident, const Work& work) {
  const int most = std::max(1, resident.blocks());
  DispatchPolicy policy;
  policy.early = resident.alone;
  DispatchRoles& roles = policy.roles;
  if (work.sends) {
    roles.rankers = work.parts + 2 <= most ? work.parts : 1;
    // Where any block can count, one sends the counts, which receivers begin with, while others store entries. To far
    // ranks both go by puts, which one fence keeps in order (I2).
    roles.counts_apart =
        work.counts_all && work.all_near && roles.rankers == work.parts && work.parts + kLeastReceivers <= most;
    roles.rankers += roles.counts_apart ? 1 : 0;
    const int room = most - roles.rankers;
    // Where blocks are few, those that rank receive, too, if others have much to receive.
    const int part = std::clamp(dispatching_part(most, work), 1, room - 1);
    const bool rankers_help = has_few_blocks(resident) && rankers_receive_beside(room - part, roles.rankers);
    const int most_to_send = rankers_help ? part : room * 5 / 8;
    const int room_to_send = work.receives ? most_to_send : room;
    const StoringSenders storing = storing_senders(work, room_to_send);
    roles.stores = storing.blocks > 0;
    roles.senders = roles.stores ? storing.blocks : std::max(1, std::min(most_senders(work), room_to_send));
    const int with_buffers = most_teams_with_buffers(work, roles.senders);
    const int most_teams = std::min(with_buffers, std::max(1, most_send_teams(work) / roles.senders));
    roles.send_team_threads =
        roles.stores ? kThreads / storing.teams : team_threads_for(roles.senders, work.num_tokens, most_teams);
  }
  const int busy = roles.rankers + roles.senders;
  const int to_receive = std::max(work.arrivals + padding_blocks(work), kLeastReceivers);
  const int receivers = work.receives ? std::min(most - busy, to_receive) : 0;
  policy.blocks = busy + receivers;
  roles.rankers_receive = work.receives && rankers_receive_beside(receivers, roles.rankers);
  const int all_receivers = receivers + (roles.rankers_receive ? roles.rankers : 0);
  const int places = work.ranks * std::max(work.num_tokens, 1);
  // Half of them, as tokens come before padding.
  roles.receive_team_threads = loose_team_threads_for(std::max(1, all_receivers), places, padding_blocks(work) / 2);
  roles.receive_teams = sharing_teams(all_receivers, roles.receive_team_threads, work.ranks, places);
  return policy;
}

inline constexpr int kLeastSumThreads = 128;  // that sum a token from all ranks: smaller teams finish it late

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

// Many results: two thirds of the blocks send at most, as many teams as fill the links, and the others receive. Results
// are made in their slots, as stores of many threads are there sooner than bulk copies.
inline constexpr double kMostBytesSummed = 9e6;  // of results that are made at once
inline constexpr int kManyResults = 6;           // for each block
constexpr bool parts_roles(const Work& work, int most) {
  return work.sends && work.receives && work.all_near && work.ranks > 1 && most >= 3 &&
         likely_turns(work) >= kManyResults * most;
}

// Rows come by way of shared memory where blocks are few, as each of them then has to take more than registers hold
// loads for; and where results are of many rows, as then these take the time and not the links.
inline constexpr double kManyRowsOfResult = 3;
constexpr double likely_results(const Work& work) { return work.exact ? work.top_k : likely_ranks(work); }
constexpr bool takes_rings(const Resident& resident, const Work& work) {
  return work.has_rings && (has_few_blocks(resident) || work.top_k > kManyRowsOfResult * likely_results(work));
}

// Of few blocks those that send are as many as their part of what all of them read and write: of a token all rows and
// all results, and then all results and a sum.
constexpr int sending_part(int blocks, const Work& work) {
  const double results = likely_results(work);
  const double sent = work.top_k + results;
  return static_cast<int>(blocks * sent / (sent + results + 1));
}

constexpr CombinePolicy parted_combine_policy(const Resident& resident, const Work& work) {
  const int most = resident.blocks();
  const bool rings = takes_rings(resident, work);
  const bool few = rings && has_few_blocks(resident);
  const int most_senders = few ? std::clamp(sending_part(most, work), 1, most - 1) : 2 * most / 3;
  const int wanted = std::max(1, static_cast<int>(kMostBytesSummed / (2 * std::max(1, work.hidden))));
  int teams = 1;
  while (teams < kMostTeams && most_senders * teams < wanted) teams *= 2;
  CombinePolicy policy;
  policy.early = resident.alone;
  policy.blocks = most;
  policy.roles.senders = policy.roles.first_receiver = std::clamp(wanted / teams, 1, most_senders);
  policy.roles.send_team_threads = kThreads / teams;
  policy.roles.receive_team_threads = std::max(few ? kLeastTeamThreads : kLeastSumThreads,
                                               loose_team_threads_for(most - policy.roles.senders, work.num_tokens));
  policy.roles.direct = true;
  policy.roles.rings = rings;
  policy.roles.looks_ahead = !rings && looks_ahead(policy.roles, work.arrivals);
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
  if (!apart && parts_roles(work, most)) return parted_combine_policy(resident, work);
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
  return policy;
}

}  // namespace ferry::cuda
