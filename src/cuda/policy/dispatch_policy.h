// The launch policy of a dispatch: how many blocks rank, send and receive, in teams of what size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ferry/detail/cuda/policy/tuning.h"

namespace ferry::cuda {

// Blocks that send: a third of an H200's multiprocessors, or half of them where their teams would have more than a
// token each; more of them crowd the links. Up to twice a third where each has one token, which crowds nothing.
inline constexpr int kMostSenders = 44;
inline constexpr int kMostSendersOfMany = 66;
inline constexpr int kManyTokens = 4 * kMostSenders;  // of four warps a team
inline constexpr int kMostSendTeams = 264;            // of all senders of a dispatch, for the same reason

// Of few blocks of a dispatch that have a multiprocessor each, those that send are as many as their part of the time:
// reading tokens, encoding them and writing messages takes longer, for as many bytes, than reading messages and writing
// rows.
inline constexpr double kTimeOfSentByte = 2.2;
constexpr int dispatching_part(int blocks, const Work& work, double time_of_sent_byte = kTimeOfSentByte) {
  const double sent = time_of_sent_byte * (2.0 * work.hidden + likely_ranks(work) * work.message_bytes);
  const double received = (likely_ranks(work) + likely_rows(work)) * work.message_bytes;
  const double part = blocks * sent / std::max(1.0, sent + received);
  const int whole = static_cast<int>(part);
  return part - whole < 0.5 ? whole : whole + 1;
}

// A world of one rank has no links to crowd. Where sending is much of the time, so many bytes of messages are in the
// making as are best there; and of many tokens as many blocks send as are their part of the time, but no more than
// there are multiprocessors.
inline constexpr double kTimeOfSentByteAlone = 1.7;
inline constexpr double kMuchOfTheTime = 0.4;
inline constexpr int kManyTokensAlone = 2048;
inline constexpr double kMostBytesMade = 4.5e6;
constexpr int part_alone(const Resident& resident, const Work& work) {
  return dispatching_part(resident.blocks(), work, kTimeOfSentByteAlone);
}
constexpr bool sends_alone(const Resident& resident, const Work& work) {
  return work.ranks == 1 && !has_few_blocks(resident) &&
         part_alone(resident, work) >= kMuchOfTheTime * resident.blocks();
}

// Twice kMostSenders where a message is less than two bytes for three columns: making it takes as long, and the links
// are less full.
constexpr bool has_small_messages(const Work& work) { return 2 * work.hidden > 3 * work.message_bytes; }
constexpr int most_senders(const Resident& resident, const Work& work) {
  if (sends_alone(resident, work) && work.num_tokens >= kManyTokensAlone)
    return std::min(part_alone(resident, work), resident.multiprocessors);
  if (work.num_tokens <= 2 * kMostSenders) return std::max(1, work.num_tokens);
  if (has_small_messages(work)) return 2 * kMostSenders;
  return work.num_tokens <= kManyTokens ? kMostSenders : kMostSendersOfMany;
}
constexpr int most_send_teams(const Resident& resident, const Work& work) {
  if (sends_alone(resident, work)) return static_cast<int>(kMostBytesMade / std::max(1, work.message_bytes));
  return (has_small_messages(work) ? 2 : 1) * kMostSendTeams;
}

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

// Blocks beside those that a few messages keep busy: a block marks the padding of one group after another, and in tiles
// zeroes its scales, which takes longer than a few tokens.
inline constexpr int kMostPaddingBlocks = 64;
constexpr int padding_blocks(const Work& work) {
  return std::min({kMostPaddingBlocks, work.groups, work.num_tokens * work.top_k});
}

// Whether the scales kernel follows a dispatch of so many thread blocks. It takes time of its own, so only from so many
// words of scales for each block on, and where stores of single words would hold the others up, as messages come faster
// than they are laid out: blocks are few, or the words of a message's rows are many beside its bytes, which the links
// need time for.
inline constexpr int kManyScaleWords = 3000;
inline constexpr int kBytesForScaleWord = 42;  // of a message, that hide a store
constexpr bool stores_scales_last(const Resident& resident, const Work& work, int blocks) {
  const std::int64_t rows = std::int64_t{work.num_tokens} * work.top_k;
  if (!work.receives || rows * work.scale_words < std::int64_t{kManyScaleWords} * blocks) return false;
  const std::int64_t of_a_message = std::int64_t{work.top_k} * work.scale_words * kBytesForScaleWord;
  return blocks < resident.multiprocessors ||
         of_a_message >= std::int64_t{std::min(work.ranks, work.top_k)} * work.message_bytes;
}

// Few entries are sooner counted by every block that ranks than by each its share. `words` of bits, 32 tokens each, fit
// in shared memory.
inline constexpr int kEntriesByAll = 2048;
constexpr bool each_counts_all(int num_tokens, int top_k, int words) {
  return num_tokens <= std::min(32 * words, kEntriesByAll / top_k);
}

// A warp for a message only where it has several, as it takes longer for each.
constexpr int most_teams_with_buffers(const Work& work, int senders) {
  return work.num_tokens >= 2 * kMostTeams * senders ? work.buffer_teams : std::min(work.buffer_teams, kMostTeams / 2);
}

// Whether so few blocks receive that those that rank do, once they have ranked.
constexpr bool rankers_receive_beside(int receivers, int rankers) { return receivers < 8 * rankers; }

// Where blocks are few, two share a multiprocessor as halves of a thread block: one waits for tokens, and for its
// messages to leave, while the other writes rows as fast as a multiprocessor can.
inline constexpr int kLeastThreadBlocksOfHalves = 4;
constexpr int dispatch_halves(const Resident& resident, const Work& work) {
  return work.has_halves && has_few_blocks(resident) && resident.blocks() >= kLeastThreadBlocksOfHalves ? 2 : 1;
}

// Blocks that rank: eight, or more where each would have many entries, up to an eighth of all blocks and as many as the
// table has parts; where there are hardly eight, a third. Each has equally many parts, the last one perhaps fewer.
inline constexpr int kFewRankers = 8;
inline constexpr int kEntriesOfRanker = 2048;
constexpr int parts_of_ranker(const Work& work, int rankers) { return (work.parts + rankers - 1) / rankers; }
constexpr int blocks_that_rank(int most, const Work& work) {
  const int for_entries = work.num_tokens * work.top_k / kEntriesOfRanker;
  const int many = std::max(kFewRankers, std::min(for_entries, most / 8));
  const int parts = parts_of_ranker(work, kFewRankers + 2 <= most ? many : std::max(1, most / 3));
  return (work.parts + parts - 1) / parts;
}

// Blocks of a dispatch that may send, beside those that rank.
constexpr int room_to_send(const Resident& resident, const Work& work, int rankers) {
  const int most = std::max(1, resident.blocks());
  if (dispatch_halves(resident, work) == 2) return most;  // one of each thread block
  const int room = most - rankers;
  if (!work.receives) return room;
  // Where blocks are few, those that rank receive, too, if others have much to receive.
  const int part = std::clamp(dispatching_part(most, work), 1, room - 1);
  return has_few_blocks(resident) && rankers_receive_beside(room - part, rankers) ? part : room * 5 / 8;
}

constexpr DispatchRoles sending_roles(const Resident& resident, const Work& work) {
  const int most = std::max(1, resident.blocks());
  const int halves = dispatch_halves(resident, work);
  DispatchRoles roles;
  roles.rankers = blocks_that_rank(most, work);
  // Where any block can count, one sends the counts, which receivers begin with, while others store entries. To far
  // ranks both go by puts, which one fence keeps in order (I2).
  roles.counts_apart =
      work.counts_all && work.all_near && roles.rankers == work.parts && work.parts + kLeastReceivers <= halves * most;
  roles.rankers += roles.counts_apart ? 1 : 0;
  const int room = room_to_send(resident, work, roles.rankers);
  const StoringSenders storing = halves == 1 ? storing_senders(work, room) : StoringSenders{};
  roles.stores = storing.blocks > 0;
  roles.senders = roles.stores ? storing.blocks : std::max(1, std::min(most_senders(resident, work), room));
  const int with_buffers = most_teams_with_buffers(work, roles.senders);
  const int most_teams = std::min(with_buffers, std::max(1, most_send_teams(resident, work) / roles.senders));
  roles.send_team_threads =
      roles.stores ? kThreads / storing.teams : team_threads_for(roles.senders, work.num_tokens, most_teams);
  return roles;
}

constexpr DispatchPolicy dispatch_policy(const Resident& resident, const Work& work) {
  DispatchPolicy policy;
  policy.early = resident.alone;
  policy.halves = dispatch_halves(resident, work);
  DispatchRoles& roles = policy.roles;
  if (work.sends) roles = sending_roles(resident, work);
  const int busy = roles.rankers + roles.senders;
  const int most = policy.halves * std::max(1, resident.blocks());
  const int to_receive = std::max(work.arrivals + padding_blocks(work), kLeastReceivers);
  policy.blocks = busy + (work.receives ? std::min(most - busy, to_receive) : 0);
  // A thread block has at most one half that sends, and one that ranks.
  if (policy.halves == 2) policy.blocks = 2 * std::max({roles.senders, roles.rankers, (policy.blocks + 1) / 2});
  const int receivers = work.receives ? policy.blocks - busy : 0;
  roles.rankers_receive = work.receives && rankers_receive_beside(receivers, roles.rankers);
  const int all_receivers = receivers + (roles.rankers_receive ? roles.rankers : 0);
  const int places = work.ranks * std::max(work.num_tokens, 1);
  // Half of them, as tokens come before padding.
  roles.receive_team_threads = loose_team_threads_for(std::max(1, all_receivers), places, padding_blocks(work) / 2);
  roles.receive_teams = sharing_teams(all_receivers, roles.receive_team_threads, work.ranks, places);
  return policy;
}

}  // namespace ferry::cuda
