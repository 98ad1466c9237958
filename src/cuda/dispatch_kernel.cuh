// The dispatch kernel: who does what in the grid. The phases are protocol/dispatch.h's.
#pragma once

#include "cuda/kernel_params.h"
#include "cuda/last_block.cuh"
#include "cuda/peer_fabric.cuh"
#include "cuda/ranking.cuh"
#include "cuda/row_starts.cuh"
#include "cuda/team_rows.cuh"
#include "cuda/token_scratch.cuh"

namespace ferry::cuda {

// What each team keeps in shared memory; behind all of them, the role's part: rings, counters or row starts.
struct DispatchTeam {
  TokenScratch scratch;
  std::uint64_t messages[kMaxRanksPerNode];
  std::uint64_t bytes[kMaxRanksPerNode];
};
inline constexpr std::size_t kDispatchSharedBytes = (kMostTeams * sizeof(DispatchTeam) + 127) / 128 * 128;

__device__ inline RowStarts starts_in(const Plan& plan, std::byte* memory) {
  RowStarts starts;
  starts.of_source = reinterpret_cast<std::uint32_t*>(memory);
  starts.group = starts.of_source + plan.shape.ranks * plan.local_experts();
  starts.filled = starts.group + plan.groups() + 1;
  starts.tiles = starts.filled + plan.groups();
  return starts;
}

// Teams of the blocks [first, end): those of different blocks come first, so that few tokens spread over many.
__device__ inline Block share_of(const TeamGroup& team, int first, int end) {
  const int teams = static_cast<int>(blockDim.x) / team.size();
  const int blocks = end - first;
  return {team.team() * blocks + static_cast<int>(blockIdx.x) - first, teams * blocks};
}

// The first block, all of it: routing goes out before anything else is done with it.
__device__ inline bool rank_and_publish(const DispatchParams& p, const TeamGroup& all, PeerFabric& fabric, Epoch epoch,
                                        DispatchTeam& shared, std::byte* memory) {
  if (!await_buffers(p.plan, fabric, all, epoch)) return false;
  rank_entries(all, p.plan, p.in, p.num_experts,
               reinterpret_cast<RoutingEntry*>(fabric.local(p.plan.map.table(epoch, p.plan.rank))),
               reinterpret_cast<std::uint32_t*>(fabric.local(p.plan.map.sent_counts(epoch))),
               reinterpret_cast<std::uint32_t*>(memory), p.ranking);
  publish_routing(p.plan, fabric, all, p.in.num_tokens, epoch, shared.bytes);
  return true;
}

template <TokenFormat Fmt>
__device__ bool send_share(const DispatchParams& p, const TeamGroup& team, PeerFabric& fabric, Epoch epoch,
                           DispatchTeam& shared) {
  if (!await_buffers(p.plan, fabric, team, epoch)) return false;
  SendCounts counted{0, 0, shared.messages, shared.bytes};
  send_tokens(p.plan, fabric, team, Fmt{}, p.in, epoch, share_of(team, 1, 1 + p.roles.senders), nullptr, shared.scratch,
              counted);
  if (counted.non_finite != 0) fetch_add_relaxed(p.links.state->non_finite, counted.non_finite);
  return true;
}

__device__ inline void count_received(const DispatchParams& p, const TeamGroup& g, const PeerFabric& fabric,
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
__device__ bool lay_out_share(const DispatchParams& p, const TeamGroup& all, const TeamGroup& team, PeerFabric& fabric,
                              Epoch epoch, int first_block, DispatchTeam& shared, std::byte* memory) {
  if (!await_routing(p.plan, fabric, all, epoch)) return false;
  const RowStarts starts = starts_in(p.plan, memory);
  find_row_starts(all, p.plan, fabric, epoch, p.in.shared_end - p.in.shared_begin, starts);
  const int index = static_cast<int>(blockIdx.x) - first_block;
  const int blocks = static_cast<int>(gridDim.x) - first_block;
  write_row_metadata(p.plan, all, {index, blocks}, starts, p.out);
  if (index == blocks - 1) {
    keep_row_starts(all, p.plan, starts, p.starts);
    count_received(p, all, fabric, epoch);
  }
  const Block block = share_of(team, first_block, first_block + blocks);
  return lay_out_shared_rows(p.plan, fabric, team, Fmt{}, p.in.shared_begin, p.in.shared_end, epoch, block, starts,
                             p.out, shared.scratch) &&
         lay_out_rows(p.plan, fabric, team, Fmt{}, epoch, block, starts, p.out, shared.scratch);
}

template <TokenFormat Fmt>
__device__ bool play_role(const DispatchParams& p, const TeamGroup& all, const TeamGroup& team, PeerFabric& fabric,
                          Epoch epoch, DispatchTeam& shared, std::byte* memory) {
  const int index = static_cast<int>(blockIdx.x);
  const int first_receiver = p.sends ? 1 + p.roles.senders : 0;
  if (p.sends && index == 0) return rank_and_publish(p, all, fabric, epoch, shared, memory);
  if (p.sends && index < first_receiver) return send_share<Fmt>(p, team, fabric, epoch, shared);
  return !p.receives || lay_out_share<Fmt>(p, all, team, fabric, epoch, first_receiver, shared, memory);
}

template <TokenFormat Fmt>
__global__ void __launch_bounds__(512, 2) dispatch_kernel(const __grid_constant__ DispatchParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const TeamGroup team(p.team_threads);
  const TeamGroup all;
  auto& shared = reinterpret_cast<DispatchTeam*>(memory)[team.team()];
  std::byte* role_memory = memory + kDispatchSharedBytes;
  for (int i = team.thread(); i < kMaxRanksPerNode; i += team.size()) shared.messages[i] = shared.bytes[i] = 0;
  all.sync();
  DeviceState& state = *p.links.state;
  const Epoch epoch = load_relaxed(state.dispatched) + (p.sends ? 1 : 0);
  const std::size_t ring = PeerFabric::kRing * p.plan.map.message_bytes();
  PeerFabric fabric(p.links, role_memory + static_cast<std::size_t>(team.team()) * ring, p.plan.map.message_bytes());
  const bool ok = play_role<Fmt>(p, all, team, fabric, epoch, shared, role_memory);
  fabric.finish_puts(team);
  add_counts(team, p.plan, shared.messages, p.stats.messages);
  add_counts(team, p.plan, shared.bytes, p.stats.bytes);
  if (!is_last_block(all, state, ok)) return;
  if (p.receives) give_back(all, p.plan, fabric, state, epoch - 1);
  if (all.thread() == 0 && p.receives) fetch_add_relaxed(state.dispatches, std::uint64_t{1});
  if (all.thread() == 0 && p.sends) store_release(state.dispatched, epoch);
}

}  // namespace ferry::cuda
