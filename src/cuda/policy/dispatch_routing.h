// Blocks of a dispatch that build the routing table, and how much room they leave to those that send.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/policy/problem.h"
#include "cuda/policy/team_sizes.h"

namespace ferry::cuda {

// Blocks that send, if senders and receivers are to end together: a byte that is read, encoded and sent takes
// `time_of_sent_byte` times as long as a byte that is received and written to rows.
inline constexpr double kTimeOfSentByte = 2.2;  // log: Few blocks; cuda_2xh200.jsonl:224-243 (before: 174-183)
constexpr int senders_by_time(int blocks, const Problem& problem, double time_of_sent_byte = kTimeOfSentByte) {
  const double sent = time_of_sent_byte * (2.0 * problem.hidden + expected_ranks(problem) * problem.message_bytes);
  const double received = (expected_ranks(problem) + written_rows(problem)) * problem.message_bytes;
  const double part = blocks * sent / std::max(1.0, sent + received);
  const int whole = static_cast<int>(part);
  return part - whole < 0.5 ? whole : whole + 1;
}

// Where blocks are few, a thread block is two logical blocks. One waits for tokens, and for its messages to leave,
// while the other writes rows as fast as a multiprocessor can (log: Few blocks; cuda_2xh200.jsonl:256-283).
inline constexpr int kMinPairedCtas = 4;  // one for each role and one more; not measured apart
constexpr int logical_blocks_per_cta(const DeviceLimits& limits, const Problem& problem) {
  return problem.can_pair_blocks && has_few_blocks(limits) && limits.blocks() >= kMinPairedCtas ? 2 : 1;
}

// A few entries are counted by one routing block sooner than by each block its share. `words` of 32 bits, one bit for a
// token, fit in shared memory.
inline constexpr int kMaxEntriesOfOneBlock = 2048;  // log: First versions, last table
constexpr bool one_block_counts_all(int num_tokens, int top_k, int words) {
  return num_tokens <= std::min(32 * words, kMaxEntriesOfOneBlock / top_k);
}

// Blocks that build the table: eight, or more where each would have many entries. Up to an eighth of all blocks, and
// one for each part of the table. Where there are hardly eight blocks, a third of them. Each has equally many parts,
// the last one perhaps fewer.
inline constexpr int kRoutingBlocks = 8;                 // log: Large tables and short rows, last table
inline constexpr int kMaxEntriesPerRoutingBlock = 2048;  // log: Large tables and short rows; cuda_2xh200.jsonl:297-330
constexpr int parts_per_routing_block(const Problem& problem, int routing_blocks) {
  return (problem.table_parts + routing_blocks - 1) / routing_blocks;
}
constexpr int table_blocks_for(const Problem& problem, int blocks) {
  const int for_entries = problem.num_tokens * problem.top_k / kMaxEntriesPerRoutingBlock;
  const int many = std::max(kRoutingBlocks, std::min(for_entries, blocks / 8));
  const int parts = parts_per_routing_block(problem, kRoutingBlocks + 2 <= blocks ? many : std::max(1, blocks / 3));
  return (problem.table_parts + parts - 1) / parts;
}

struct RoutingBlocks {
  int blocks = 0;  // with the one that counts
  bool counts_apart = false;
};
// Where one block can count all, a block of its own sends the counts, which receivers need first, while others store
// entries (log: Small rounds). To remote ranks both go by puts, and one fence orders them (I2), so there it does not.
constexpr RoutingBlocks routing_blocks(const DeviceLimits& limits, const Problem& problem) {
  const int blocks = std::max(1, limits.blocks());
  const int table = table_blocks_for(problem, blocks);
  const bool counts_apart = problem.counts_all && !problem.has_remote_ranks && table == problem.table_parts &&
                            problem.table_parts + kMinReceivers <= logical_blocks_per_cta(limits, problem) * blocks;
  return {table + (counts_apart ? 1 : 0), counts_apart};
}

// So few blocks receive that routing blocks join them once the table is built. Elsewhere they would end last (log:
// First versions, "leave receiving to others"). The factor is not measured apart.
constexpr bool routing_blocks_receive_too(int receivers, int routing_blocks) { return receivers < 8 * routing_blocks; }

// Blocks that may send, beside the routing blocks.
constexpr int room_to_send(const DeviceLimits& limits, const Problem& problem) {
  const int blocks = std::max(1, limits.blocks());
  if (logical_blocks_per_cta(limits, problem) == 2) return blocks;  // one logical block of each thread block
  const int routing = routing_blocks(limits, problem).blocks;
  const int room = blocks - routing;
  if (!problem.receives) return room;
  if (has_few_blocks(limits)) {
    const int by_time = std::clamp(senders_by_time(blocks, problem), 1, room - 1);
    if (routing_blocks_receive_too(room - by_time, routing)) return by_time;
  }
  return room * 5 / 8;  // not measured apart: more than any regime asks for, but of few blocks
}

}  // namespace ferry::cuda
