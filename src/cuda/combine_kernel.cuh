// The combine kernel: every team sends its share of the results, then sums its share of the tokens. The phases are
// protocol/combine.h's. No token format takes part: what travels is bf16.
#pragma once

#include "cuda/kernel_params.h"
#include "cuda/last_block.cuh"
#include "cuda/peer_fabric.cuh"
#include "cuda/team_rows.cuh"
#include "cuda/token_scratch.cuh"

namespace ferry::cuda {

// What each team keeps in shared memory besides its ring.
struct CombineTeam {
  TokenScratch scratch;
  std::uint64_t bytes[kMaxRanksPerNode];
};
inline constexpr std::size_t kCombineSharedBytes = (kMostTeams * sizeof(CombineTeam) + 127) / 128 * 128;

__device__ inline bool combine_share(const CombineParams& p, const TeamGroup& g, PeerFabric& fabric, Epoch epoch,
                                     CombineTeam& team) {
  for (int i = g.thread(); i < kMaxRanksPerNode; i += g.size()) team.bytes[i] = 0;
  g.sync();
  const int teams = static_cast<int>(blockDim.x) / g.size();
  const int blocks = static_cast<int>(gridDim.x);
  const Block block{g.team() * blocks + static_cast<int>(blockIdx.x), teams * blocks};
  if (p.sends)
    send_results(p.plan, fabric, g, epoch, block, p.starts, p.in, nullptr, team.scratch, ResultCounts{team.bytes});
  g.sync();
  add_counts(g, p.plan, team.bytes, p.stats.bytes);
  return !p.receives || receive_results(p.plan, fabric, g, epoch, block, p.starts, p.in, p.out, team.scratch);
}

__global__ void __launch_bounds__(512, 2) combine_kernel(const __grid_constant__ CombineParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const TeamGroup team(p.team_threads);
  const TeamGroup all;
  DeviceState& state = *p.links.state;
  const Epoch epoch = load_relaxed(state.dispatched);
  const std::size_t ring = PeerFabric::kRing * p.plan.map.result_bytes();
  PeerFabric fabric(p.links, memory + kCombineSharedBytes + static_cast<std::size_t>(team.team()) * ring,
                    p.plan.map.result_bytes());
  const bool ok = combine_share(p, team, fabric, epoch, reinterpret_cast<CombineTeam*>(memory)[team.team()]);
  if (!is_last_block(all, state, ok) || !p.receives) return;
  give_back(all, p.plan, fabric, state, epoch);
  if (all.thread() == 0) fetch_add_relaxed(state.combines, std::uint64_t{1});
}

}  // namespace ferry::cuda
