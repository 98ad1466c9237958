// Two kernels of exchanges that allow rows by_source.
//   token_list_kernel   follows a kernel that routes and sends and does not list tokens itself: this rank's rows are
//                       others, or it only sends. Tells every rank which tokens of this one come there. A block serves
//                       one rank, or several
//   await_lists_kernel  one warp, behind a receiving half whose rows are not by_source: waits for the lists of remote
//                       ranks
#pragma once

#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

inline constexpr int kAwaitListsThreads = 32;

// A block of a grid.
template <DeviceFabric F>
__device__ void list_all_tokens(const TokenListParams& p, TokenListMemory& memory) {
  const SyncedTeam all = SyncedTeam::of_block();
  if (!all.all(!p.links.state->dispatch_has_stopped())) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  const FixedShare block{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  list_tokens<typename F::Reach>(all, {p.plan, p.links, p.num_tokens, p.bytes}, routing, block, memory);
}

template <DeviceFabric F>
__global__ void __launch_bounds__(kThreads) token_list_kernel(const __grid_constant__ TokenListParams p) {
  extern __shared__ __align__(128) std::byte list_memory[];
  ptx::let_next_kernel_launch();  // it waits for the end of this one
  ptx::await_earlier_kernels();
  list_all_tokens<F>(p, *reinterpret_cast<TokenListMemory*>(list_memory));
}

// I1, I15: a put list may arrive late. A rank that has waited for all lists of a routing before it begins the next one
// gets none that its source has made anew, and none that comes behind the list of two routings later.
template <DeviceFabric F>
__global__ void __launch_bounds__(kAwaitListsThreads) await_lists_kernel(const __grid_constant__ TokenListParams p) {
  ptx::await_earlier_kernels();
  if (p.links.state->has_stopped()) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  const typename F::Reach reach(p.links);
  const typename F::Waits waits(p.links);
  for (int source = static_cast<int>(threadIdx.x); source < p.plan.shape.ranks; source += kAwaitListsThreads)
    if (!p.plan.is_masked(source) && !reach.is_direct(source) && !waits.wait_for_list(p.plan, routing, source).is_there)
      return;
}

}  // namespace ferry::cuda
