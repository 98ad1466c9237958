// The kernel that tells every rank which tokens of this one come there. A block serves one rank, or several. The kernel
// follows the one that routes and sends, in every exchange that allows rows by_source, whatever the order of this
// rank's own rows.
#pragma once

#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) token_list_kernel(const __grid_constant__ TokenListParams p) {
  extern __shared__ __align__(128) std::byte list_memory[];
  const SyncedTeam all = SyncedTeam::of_block();
  auto& memory = *reinterpret_cast<TokenListMemory*>(list_memory);
  ptx::await_earlier_kernels();
  if (!all.all(load_relaxed(p.links.state->failed) == 0)) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  for (int peer = static_cast<int>(blockIdx.x); peer < p.plan.shape.ranks; peer += static_cast<int>(gridDim.x)) {
    if (p.plan.is_masked(peer)) continue;
    TokenLister(all, p, routing, peer, memory).list(p.num_tokens, routing);
    if (peer != p.plan.rank && all.thread() == 0)
      fetch_add_relaxed(p.bytes[peer], std::uint64_t{token_list_words(p.num_tokens) * sizeof(std::uint64_t)});
  }
}

}  // namespace ferry::cuda
