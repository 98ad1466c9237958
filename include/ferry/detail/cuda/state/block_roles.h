// What a launch policy decides and a kernel reads: how many blocks there are, which roles they have, and how many
// threads work on one token. Plain values that compare. src/cuda/policy chooses them.
#pragma once

#include "ferry/formats/portable.h"

namespace ferry::cuda {

inline constexpr int kThreads = 512;   // of a block
inline constexpr int kMostTeams = 16;  // of a block
inline constexpr int kLeastTeamThreads = kThreads / kMostTeams;

// Blocks of a dispatch, by their index:
//   the first `routing_blocks`   build the routing table, one share each. Where `counts_apart`, the last of them has no
//                                share of the table and sends the counts.
//   the next `senders`           send messages.
//   the others                   receive: they lay out arrivals. Routing blocks join them when the table is built,
//                                where `routing_blocks_receive`.
struct DispatchRoles {
  int routing_blocks = 0;
  int senders = 0;
  bool routing_blocks_receive = false;
  int send_team_threads = kThreads;
  int receive_team_threads = kThreads;
  int receive_teams = 0;  // which share the arrivals
  bool stores = false;    // all threads of a team store the message; otherwise it leaves by bulk copies
  bool counts_apart = false;
  bool triggers_at_start = false;  // sends only: the next kernel may be launched as soon as every block has begun
  FERRY_HD constexpr int table_blocks() const { return routing_blocks - (counts_apart ? 1 : 0); }
  friend constexpr bool operator==(const DispatchRoles&, const DispatchRoles&) = default;
};

// Blocks of a combine: those below `senders` send, those from `first_receiver` on receive. A block that does both sums
// what has arrived between two sends.
struct CombineRoles {
  int senders = 0;
  int first_receiver = 0;
  int send_team_threads = kThreads;
  int receive_team_threads = kThreads;
  bool in_place = false;       // a result is made in its slot; otherwise in a buffer that is then copied
  bool prefetches = false;     // a team prefetches the rows of its next token into the L2 cache
  bool pipelined = false;      // rows come through shared memory (row_pipeline.cuh), in the room of the buffers
  bool copies_rows = false;    // pipelined, teams of a warp: a result that is one row is copied (row_copies.cuh)
  bool triggers_late = false;  // the next kernel waits until every block of this one has ended
  friend constexpr bool operator==(const CombineRoles&, const CombineRoles&) = default;
};

// I21. `pdl`: programmatic dependent launch. The blocks of this kernel may take the room that the kernel before it
// leaves while that one still waits for other ranks. Not allowed where another exchange's kernel may need that room.
template <class Roles>
struct LaunchPolicy {
  int blocks = 0;  // logical blocks
  Roles roles = {};
  bool pdl = true;
  int blocks_per_cta = 1;  // 2: one thread block runs two logical blocks, which so share a multiprocessor
  constexpr int thread_blocks() const { return blocks / blocks_per_cta; }
  friend constexpr bool operator==(const LaunchPolicy&, const LaunchPolicy&) = default;
};
using DispatchPolicy = LaunchPolicy<DispatchRoles>;
using CombinePolicy = LaunchPolicy<CombineRoles>;

// Where a thread block is two logical blocks, block 0 of it sends, and block 1 routes or receives. So every
// multiprocessor has the same share of both. Only block 1 has the barriers that the few teams of a routing block need.
struct LogicalBlock {
  int index;
  int count;
  int in_cta;  // 0 or 1: which logical block of its thread block
};
FERRY_HD constexpr LogicalBlock logical_block_of(int thread_block, int in_cta, int thread_blocks, int routing_blocks) {
  const int behind = in_cta == 0 ? routing_blocks : thread_block < routing_blocks ? 0 : thread_blocks;
  return {behind + thread_block, 2 * thread_blocks, in_cta};
}

}  // namespace ferry::cuda
