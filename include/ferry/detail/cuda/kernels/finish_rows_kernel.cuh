// The kernel behind the one that carries a dispatch's tokens, where several parts are left: token lists, scales, a
// handle, and outputs that may be left out. So a dispatch is two kernels, however many of them meet. A part that is
// alone has a kernel of its own. No name of theirs has the word dispatch: who looks for the kernel of a dispatch in a
// profile, as DeepEP's tests do, finds one.
#pragma once

#include "ferry/detail/cuda/kernels/token_list_kernel.cuh"
#include "ferry/detail/cuda/steps/more_rows.cuh"
#include "ferry/detail/cuda/steps/routing/keep_routing.cuh"
#include "ferry/detail/cuda/steps/scales.cuh"

namespace ferry::cuda {

// Lists come first, since other ranks wait for them. No part reads what another one writes. Like the scales kernel,
// this one lets the next one begin when it has ended.
template <DeviceFabric F>
__global__ void __launch_bounds__(kThreads, 2) finish_rows_kernel(const __grid_constant__ FinishParams p) {
  extern __shared__ __align__(128) std::byte finish_memory[];
  ptx::await_earlier_kernels();
  if (p.has_lists) list_all_tokens<F>(p.lists, *reinterpret_cast<TokenListMemory*>(finish_memory));
  SyncedTeam::of_block().sync();  // the scales reuse the shared memory of the lists
  if (p.has_scales) store_scales(p.scales, finish_memory);
  if (p.has_kept) keep_routing(p.kept);
  if (p.has_rows) write_more_rows(p.rows);
}

}  // namespace ferry::cuda
