// give_counts_kernel: before a dispatch by counts. All blocks make ids of destination ranks, where the host has not;
// the first one brings the counts to all ranks (steps/routing/given_counts.cuh).
#pragma once

#include "ferry/detail/cuda/steps/routing/given_counts.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
__global__ void __launch_bounds__(kThreads) give_counts_kernel(const __grid_constant__ GiveCountsParams p) {
  ptx::await_earlier_kernels();
  const SyncedTeam all = SyncedTeam::of_block();
  if (!all.all(!p.links.state->has_stopped())) return;
  if (p.in_rank != nullptr) name_ranks(p, threads_of_grid());
  if (blockIdx.x != 0) return;
  const Plan& plan = p.plan;
  const Epoch routing = load_relaxed(p.links.state->dispatched) + 1;
  auto* const counts = reinterpret_cast<std::int32_t*>(p.links.own + plan.map.sent_given_counts(routing));
  copy_given_counts(all, p, counts);
  all.sync();
  for (int peer = all.thread() / SyncedTeam::kWidth; peer < plan.shape.ranks; peer += all.size() / SyncedTeam::kWidth)
    if (!plan.is_masked(peer)) put_given_counts<typename F::Reach>(p.links, plan, peer, counts, routing);
  for (int peer = all.thread(); peer < plan.shape.ranks; peer += all.size())
    if (peer != plan.rank && !plan.is_masked(peer))
      fetch_add_relaxed(p.bytes[peer], static_cast<std::uint64_t>(plan.experts_of(peer).count) * sizeof(std::int32_t));
}

}  // namespace ferry::cuda
