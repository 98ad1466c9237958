// The dispatch kernel: who does what in the grid. The phases are protocol/dispatch.h's.
#pragma once

#include "cuda/block_rows.cuh"
#include "cuda/kernel_params.h"
#include "cuda/last_block.cuh"
#include "cuda/peer_fabric.cuh"
#include "cuda/ranking.cuh"
#include "cuda/row_starts.cuh"
#include "cuda/token_scratch.cuh"

namespace ferry::cuda {

// What a block keeps in shared memory: this, then its role's part (ring, counters or row starts).
struct DispatchShared {
  TokenScratch scratch;
  std::uint64_t messages[kMaxRanksPerNode];
  std::uint64_t bytes[kMaxRanksPerNode];
};
inline constexpr std::size_t kDispatchSharedBytes = (sizeof(DispatchShared) + 127) / 128 * 128;

__device__ inline RowStarts starts_in(const Plan& plan, std::byte* memory) {
  RowStarts starts;
  starts.of_source = reinterpret_cast<std::uint32_t*>(memory);
  starts.group = starts.of_source + plan.shape.ranks * plan.local_experts();
  starts.filled = starts.group + plan.groups() + 1;
  starts.tiles = starts.filled + plan.groups();
  return starts;
}

// The first block: routing goes out before anything else is done with it.
__device__ inline bool rank_and_publish(const DispatchParams& p, const BlockGroup& g, PeerFabric& fabric, Epoch epoch,
                                        DispatchShared& shared, std::byte* memory) {
  if (!await_buffers(p.plan, fabric, g, epoch)) return false;
  rank_entries(g, p.plan, p.in, p.num_experts,
               reinterpret_cast<RoutingEntry*>(fabric.local(p.plan.map.table(epoch, p.plan.rank))),
               reinterpret_cast<std::uint32_t*>(fabric.local(p.plan.map.sent_counts(epoch))),
               reinterpret_cast<std::uint32_t*>(memory), p.ranking);
  publish_routing(p.plan, fabric, g, p.in.num_tokens, epoch, shared.bytes);
  return true;
}

template <TokenFormat Fmt>
__device__ bool send_share(const DispatchParams& p, const BlockGroup& g, PeerFabric& fabric, Epoch epoch, Block block,
                           DispatchShared& shared) {
  if (!await_buffers(p.plan, fabric, g, epoch)) return false;
  SendCounts counted{0, 0, shared.messages, shared.bytes};
  send_tokens(p.plan, fabric, g, Fmt{}, p.in, epoch, block, nullptr, shared.scratch, counted);
  if (counted.non_finite != 0) fetch_add_relaxed(p.links.state->non_finite, counted.non_finite);
  return true;
}

__device__ inline void count_received(const DispatchParams& p, const BlockGroup& g, const PeerFabric& fabric,
                                      Epoch epoch) {
  const int experts = p.plan.local_experts();
  for (int i = g.thread(); i < p.plan.shape.ranks * experts; i += g.size()) {
    if (p.plan.masked[i / experts] != 0) continue;
    const auto* counts = reinterpret_cast<const std::uint32_t*>(fabric.local(p.plan.map.counts(epoch, i / experts)));
    if (counts[i % experts] != 0)
      fetch_add_relaxed(p.stats.received[i], static_cast<std::uint64_t>(counts[i % experts]));
  }
}

template <TokenFormat Fmt>
__device__ bool lay_out_share(const DispatchParams& p, const BlockGroup& g, PeerFabric& fabric, Epoch epoch,
                              Block block, DispatchShared& shared, std::byte* memory) {
  if (!await_routing(p.plan, fabric, g, epoch)) return false;
  const RowStarts starts = starts_in(p.plan, memory);
  find_row_starts(g, p.plan, fabric, epoch, p.in.shared_end - p.in.shared_begin, starts);
  write_row_metadata(p.plan, g, block, starts, p.out);
  if (block.index == 0) {
    keep_row_starts(g, p.plan, starts, p.starts);
    count_received(p, g, fabric, epoch);
  }
  return lay_out_shared_rows(p.plan, fabric, g, Fmt{}, p.in.shared_begin, p.in.shared_end, epoch, block, starts, p.out,
                             shared.scratch) &&
         lay_out_rows(p.plan, fabric, g, Fmt{}, epoch, block, starts, p.out, shared.scratch);
}

template <TokenFormat Fmt>
__device__ bool play_role(const DispatchParams& p, const BlockGroup& g, PeerFabric& fabric, Epoch epoch,
                          DispatchShared& shared, std::byte* memory) {
  const int index = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  const int first_receiver = p.sends ? 1 + p.roles.senders : 0;
  if (p.sends && index == 0) return rank_and_publish(p, g, fabric, epoch, shared, memory);
  if (p.sends && index < first_receiver)
    return send_share<Fmt>(p, g, fabric, epoch, {index - 1, p.roles.senders}, shared);
  return !p.receives ||
         lay_out_share<Fmt>(p, g, fabric, epoch, {index - first_receiver, blocks - first_receiver}, shared, memory);
}

template <TokenFormat Fmt>
__global__ void __launch_bounds__(512) dispatch_kernel(const __grid_constant__ DispatchParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<DispatchShared*>(memory);
  std::byte* role_memory = memory + kDispatchSharedBytes;
  const BlockGroup g;
  for (int i = g.thread(); i < kMaxRanksPerNode; i += g.size()) shared.messages[i] = shared.bytes[i] = 0;
  g.sync();
  DeviceState& state = *p.links.state;
  const Epoch epoch = load_relaxed(state.dispatched) + (p.sends ? 1 : 0);
  PeerFabric fabric(p.links, role_memory, p.plan.map.message_bytes());
  const bool ok = play_role<Fmt>(p, g, fabric, epoch, shared, role_memory);
  fabric.finish_puts(g);
  add_counts(g, p.plan, shared.messages, p.stats.messages);
  add_counts(g, p.plan, shared.bytes, p.stats.bytes);
  if (!is_last_block(g, state) || !ok) return;
  if (p.receives) give_back(g, p.plan, fabric, state, epoch - 1);
  if (g.thread() == 0 && p.receives) fetch_add_relaxed(state.dispatches, std::uint64_t{1});
  if (g.thread() == 0 && p.sends) store_release(state.dispatched, epoch);
}

}  // namespace ferry::cuda
