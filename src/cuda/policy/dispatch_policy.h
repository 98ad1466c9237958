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
constexpr int dispatching_part(int blocks, const Problem& problem, double time_of_sent_byte = kTimeOfSentByte) {
  const double sent = time_of_sent_byte * (2.0 * problem.hidden + likely_ranks(problem) * problem.message_bytes);
  const double received = (likely_ranks(problem) + likely_rows(problem)) * problem.message_bytes;
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
constexpr int part_alone(const DeviceLimits& limits, const Problem& problem) {
  return dispatching_part(limits.blocks(), problem, kTimeOfSentByteAlone);
}
constexpr bool sends_alone(const DeviceLimits& limits, const Problem& problem) {
  return problem.ranks == 1 && !has_few_blocks(limits) &&
         part_alone(limits, problem) >= kMuchOfTheTime * limits.blocks();
}

// Twice kMostSenders where a message is less than two bytes for three columns: making it takes as long, and the links
// are less full.
constexpr bool has_small_messages(const Problem& problem) { return 2 * problem.hidden > 3 * problem.message_bytes; }
constexpr int most_senders(const DeviceLimits& limits, const Problem& problem) {
  if (sends_alone(limits, problem) && problem.num_tokens >= kManyTokensAlone)
    return std::min(part_alone(limits, problem), limits.multiprocessors);
  if (problem.num_tokens <= 2 * kMostSenders) return std::max(1, problem.num_tokens);
  if (has_small_messages(problem)) return 2 * kMostSenders;
  return problem.num_tokens <= kManyTokens ? kMostSenders : kMostSendersOfMany;
}
constexpr int most_send_teams(const DeviceLimits& limits, const Problem& problem) {
  if (sends_alone(limits, problem)) return static_cast<int>(kMostBytesMade / std::max(1, problem.message_bytes));
  return (has_small_messages(problem) ? 2 : 1) * kMostSendTeams;
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
constexpr StoringSenders storing_senders(const Problem& problem, int room) {
  if (!problem.all_direct || problem.ranks < 2 || problem.message_bytes == 0) return {};
  const bool small = has_small_messages(problem);
  const double most = small ? kMostStoringSendersOfSmall : kMostStoringSenders;
  const double teams = kMostBytesStored / (problem.message_bytes * likely_others(problem));
  const int of_block = !small && teams > 4 * most && problem.num_tokens >= 16 * most ? 8 : 4;
  const int blocks = static_cast<int>(std::min(teams / of_block, most));
  const bool enough = blocks >= kLeastStoringSenders && 2 * problem.num_tokens >= 3 * blocks * of_block;
  return enough && blocks <= room && of_block <= problem.buffer_teams ? StoringSenders{blocks, of_block}
                                                                      : StoringSenders{};
}

// Blocks beside those that a few messages keep busy: a block marks the padding of one group after another, and in tiles
// zeroes its scales, which takes longer than a few tokens.
inline constexpr int kMostPaddingBlocks = 64;
constexpr int padding_blocks(const Problem& problem) {
  return std::min({kMostPaddingBlocks, problem.groups, problem.num_tokens * problem.top_k});
}

// Whether the scales kernel follows a dispatch of so many thread blocks. It takes time of its own, so only from so many
// words of scales for each block on, and where stores of single words would hold the others up, as messages come faster
// than they are laid out: blocks are few, or the words of a message's rows are many beside its bytes, which the links
// need time for.
inline constexpr int kManyScaleWords = 3000;
inline constexpr int kBytesForScaleWord = 42;  // of a message, that hide a store
constexpr bool stores_scales_last(const DeviceLimits& limits, const Problem& problem, int blocks) {
  const std::int64_t rows = std::int64_t{problem.num_tokens} * problem.top_k;
  if (!problem.receives || rows * problem.scale_words < std::int64_t{kManyScaleWords} * blocks) return false;
  const std::int64_t of_a_message = std::int64_t{problem.top_k} * problem.scale_words * kBytesForScaleWord;
  return blocks < limits.multiprocessors ||
         of_a_message >= std::int64_t{std::min(problem.ranks, problem.top_k)} * problem.message_bytes;
}

// Few entries are sooner counted by every block that ranks than by each its share. `words` of bits, 32 tokens each, fit
// in shared memory.
inline constexpr int kEntriesByAll = 2048;
constexpr bool each_counts_all(int num_tokens, int top_k, int words) {
  return num_tokens <= std::min(32 * words, kEntriesByAll / top_k);
}

// A warp for a message only where it has several, as it takes longer for each.
constexpr int most_teams_with_buffers(const Problem& problem, int senders) {
  return problem.num_tokens >= 2 * kMostTeams * senders ? problem.buffer_teams
                                                        : std::min(problem.buffer_teams, kMostTeams / 2);
}

// Whether so few blocks receive that those that rank do, once they have ranked.
constexpr bool routing_blocks_receive_too(int receivers, int routing_blocks) { return receivers < 8 * routing_blocks; }

// Where blocks are few, two share a multiprocessor as blocks_per_cta of a thread block: one waits for tokens, and for
// its messages to leave, while the other writes rows as fast as a multiprocessor can.
inline constexpr int kLeastPairedCtas = 4;
constexpr int dispatch_blocks_per_cta(const DeviceLimits& limits, const Problem& problem) {
  return problem.can_pair_blocks && has_few_blocks(limits) && limits.blocks() >= kLeastPairedCtas ? 2 : 1;
}

// Blocks that rank: eight, or more where each would have many entries, up to an eighth of all blocks and as many as the
// table has parts; where there are hardly eight, a third. Each has equally many parts, the last one perhaps fewer.
inline constexpr int kFewRoutingBlocks = 8;
inline constexpr int kEntriesPerRoutingBlock = 2048;
constexpr int parts_per_routing_block(const Problem& problem, int routing_blocks) {
  return (problem.parts + routing_blocks - 1) / routing_blocks;
}
constexpr int routing_blocks_for(int most, const Problem& problem) {
  const int for_entries = problem.num_tokens * problem.top_k / kEntriesPerRoutingBlock;
  const int many = std::max(kFewRoutingBlocks, std::min(for_entries, most / 8));
  const int parts = parts_per_routing_block(problem, kFewRoutingBlocks + 2 <= most ? many : std::max(1, most / 3));
  return (problem.parts + parts - 1) / parts;
}

// Blocks of a dispatch that may send, beside those that rank.
constexpr int room_to_send(const DeviceLimits& limits, const Problem& problem, int routing_blocks) {
  const int most = std::max(1, limits.blocks());
  if (dispatch_blocks_per_cta(limits, problem) == 2) return most;  // one of each thread block
  const int room = most - routing_blocks;
  if (!problem.receives) return room;
  // Where blocks are few, those that rank receive, too, if others have much to receive.
  const int part = std::clamp(dispatching_part(most, problem), 1, room - 1);
  return has_few_blocks(limits) && routing_blocks_receive_too(room - part, routing_blocks) ? part : room * 5 / 8;
}

constexpr DispatchRoles sending_roles(const DeviceLimits& limits, const Problem& problem) {
  const int most = std::max(1, limits.blocks());
  const int blocks_per_cta = dispatch_blocks_per_cta(limits, problem);
  DispatchRoles roles;
  roles.routing_blocks = routing_blocks_for(most, problem);
  // Where any block can count, one sends the counts, which receivers begin with, while others store entries. To far
  // ranks both go by puts, which one fence keeps in order (I2).
  roles.counts_apart = problem.counts_all && problem.all_direct && roles.routing_blocks == problem.parts &&
                       problem.parts + kLeastReceivers <= blocks_per_cta * most;
  roles.routing_blocks += roles.counts_apart ? 1 : 0;
  const int room = room_to_send(limits, problem, roles.routing_blocks);
  const StoringSenders storing = blocks_per_cta == 1 ? storing_senders(problem, room) : StoringSenders{};
  roles.stores = storing.blocks > 0;
  roles.senders = roles.stores ? storing.blocks : std::max(1, std::min(most_senders(limits, problem), room));
  const int with_buffers = most_teams_with_buffers(problem, roles.senders);
  const int most_teams = std::min(with_buffers, std::max(1, most_send_teams(limits, problem) / roles.senders));
  roles.send_team_threads =
      roles.stores ? kThreads / storing.teams : team_threads_for(roles.senders, problem.num_tokens, most_teams);
  return roles;
}

constexpr DispatchPolicy dispatch_policy(const DeviceLimits& limits, const Problem& problem) {
  DispatchPolicy policy;
  policy.pdl = limits.alone;
  policy.blocks_per_cta = dispatch_blocks_per_cta(limits, problem);
  DispatchRoles& roles = policy.roles;
  if (problem.sends) roles = sending_roles(limits, problem);
  const int busy = roles.routing_blocks + roles.senders;
  const int most = policy.blocks_per_cta * std::max(1, limits.blocks());
  const int to_receive = std::max(problem.arrivals + padding_blocks(problem), kLeastReceivers);
  policy.blocks = busy + (problem.receives ? std::min(most - busy, to_receive) : 0);
  // A thread block has at most one half that sends, and one that ranks.
  if (policy.blocks_per_cta == 2)
    policy.blocks = 2 * std::max({roles.senders, roles.routing_blocks, (policy.blocks + 1) / 2});
  const int receivers = problem.receives ? policy.blocks - busy : 0;
  roles.routing_blocks_receive = problem.receives && routing_blocks_receive_too(receivers, roles.routing_blocks);
  const int all_receivers = receivers + (roles.routing_blocks_receive ? roles.routing_blocks : 0);
  const int places = problem.ranks * std::max(problem.num_tokens, 1);
  // Half of them, as tokens come before padding.
  roles.receive_team_threads =
      warpwise_team_threads_for(std::max(1, all_receivers), places, padding_blocks(problem) / 2);
  roles.receive_teams = sharing_teams(all_receivers, roles.receive_team_threads, problem.ranks, places);
  return policy;
}

}  // namespace ferry::cuda
