// A logical block of a dispatch: its role, its shared memory, and the round that it belongs to.
#pragma once

#include "ferry/detail/cuda/kernels/calls/round_clock.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/route.cuh"
#include "ferry/detail/cuda/steps/routing/peer_counts.cuh"
#include "ferry/detail/cuda/steps/row_starts.cuh"
#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/cuda/team/work_queue.cuh"

namespace ferry::cuda {

// Shared memory of a logical block. The memory of its role follows: buffers, counters or row starts.
struct DispatchMemory {
  TokenScratch scratch[kThreads / 32];  // by warp; a sending team uses that of its first warp
  PeerCounts messages;
  PeerCounts bytes;
  int queue_slots[kMostTeams][2];
  WarpTotals totals;
  RoundStart round;
};
inline constexpr std::size_t kDispatchSharedBytes = HeapMap::whole_lines(sizeof(DispatchMemory));

template <bool kPaired>
__device__ LogicalBlock this_logical_block(const DispatchRoles& roles) {
  const int block = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  if constexpr (kPaired) return logical_block_of(block, static_cast<int>(threadIdx.y), blocks, roles.routing_blocks);
  return {block, blocks, 0};
}

// A logical block's view of a dispatch.
struct DispatchBlock {
  const DispatchParams& p;
  const LogicalBlock logical;
  const SyncedTeam& all;
  DispatchMemory& shared;
  std::byte* memory;     // the role's part
  RoundStart seen = {};  // thread 0's
  Epoch epoch = 0;       // from begin() on

  // Must come before the first load of anything that an earlier kernel may have written. Loads the epoch.
  __device__ void await_earlier_kernels() {
    ptx::await_earlier_kernels();
    seen = read_round(all, *p.links.state, p.sends, p.dispatch_call);
  }
  // All threads. False: an earlier call failed, or the kernel only receives, and not of the newest dispatch.
  __device__ bool begin() {
    const RoundStart round = broadcast_round(all, seen, shared.round);
    if (p.roles.triggers_at_start) ptx::let_next_kernel_launch();
    if (p.sends && all.thread() == 0) arrive(*p.links.state);
    epoch = round.epoch;
    return !round.broken;
  }
  __device__ int index() const { return logical.index; }
  __device__ bool routes() const { return index() < p.roles.routing_blocks; }
  // For routing blocks.
  __device__ RoutingShare routing_share() const {
    const int blocks = p.roles.table_blocks();
    const int first_part = index() * p.routing.parts_per_routing_block;
    const int parts = index() < blocks ? min(p.routing.parts_per_routing_block, p.routing.parts - first_part) : 0;
    return {index(),
            blocks,
            first_part,
            parts,
            p.links.table_parts.log2_part_tokens(p.in.num_tokens),
            index() == (p.roles.counts_apart ? blocks : 0)};
  }
  __device__ ListedTokens listed() const { return {p.plan, p.links, p.in.num_tokens, p.stats.bytes}; }
  __device__ bool sends() const { return !routes() && index() < p.roles.routing_blocks + p.roles.senders; }
  __device__ bool receives() const { return p.receives && !sends() && (!routes() || p.roles.routing_blocks_receive); }
  // This block's index among those that receive. Blocks without another role come first.
  __device__ FixedShare among_receivers() const {
    const int busy = p.roles.routing_blocks + p.roles.senders;
    const int idle = logical.count - busy;
    const int count = idle + (p.roles.routing_blocks_receive ? p.roles.routing_blocks : 0);
    return {routes() ? idle + index() : index() - busy, count};
  }
};

}  // namespace ferry::cuda
