// The combine kernel: teams that send results, teams that sum what came, or teams that do one after the other. No token
// format takes part: what travels is bf16.
#pragma once

#include "cuda/kernel_params.h"
#include "cuda/round_clock.cuh"
#include "cuda/send_results.cuh"
#include "cuda/team_rows.cuh"
#include "cuda/token_scratch.cuh"

namespace ferry::cuda {

// What each team keeps in shared memory besides its ring.
struct CombineTeam {
  TokenScratch scratch;
  std::uint64_t bytes[kMaxRanksPerNode];
};
inline constexpr std::size_t kCombineSharedBytes = (kMostTeams * sizeof(CombineTeam) + 127) / 128 * 128;

template <Fabric F>
__device__ void combine_share(const CombineParams& p, const TeamGroup& g, F& fabric, Epoch epoch, CombineTeam& team) {
  for (int i = g.thread(); i < kMaxRanksPerNode; i += g.size()) team.bytes[i] = 0;
  g.sync();
  const int blocks = static_cast<int>(gridDim.x);
  const int teams = blocks * (static_cast<int>(blockDim.x) / g.size());
  const int index = g.team() * blocks + static_cast<int>(blockIdx.x);
  if (p.sends && index < p.roles.senders) {
    send_kept_results(p.plan, fabric, g, epoch, {index, p.roles.senders}, p.kept, p.in, team.bytes);
    if (!p.receives) complete_puts(fabric, g);  // I8: combine_async, whose round may be given up
    add_counts(g, p.plan, team.bytes, p.stats.bytes);
  }
  if (!p.receives || index < p.roles.first_receiver) return;
  RowStarts starts;
  std::uint32_t first_row = 0;  // of group 0, where a shared expert's rows are
  starts.group = &first_row;
  receive_results(p.plan, fabric, g, epoch, p.num_tokens,
                  {index - p.roles.first_receiver, teams - p.roles.first_receiver}, starts, p.in, p.out, team.scratch);
}

template <Fabric F>
__global__ void __launch_bounds__(kThreads, 1) combine_kernel(const __grid_constant__ CombineParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const TeamGroup team(p.roles.team_threads);
  const TeamGroup all;
  ptx::wait_for_earlier_kernels();
  DeviceState& state = *p.links.state;
  const Epoch epoch = read_epoch(state, false);
  if (all.any(load_relaxed(state.failed) != 0)) return;
  F fabric(p.links, p.plan, p.plan.map.result_bytes());
  fabric.use_rings(memory + kCombineSharedBytes, team);
  combine_share(p, team, fabric, epoch, reinterpret_cast<CombineTeam*>(memory)[team.team()]);
  ptx::let_next_kernel_launch();
  if (p.receives && blockIdx.x == 0 && all.thread() == 0) fetch_add_relaxed(state.combines, std::uint64_t{1});
}

}  // namespace ferry::cuda
