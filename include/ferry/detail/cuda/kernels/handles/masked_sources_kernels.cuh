// Two small kernels of a dispatch with a handle, where some rank is masked (I11; steps/masked_sources.cuh). They only
// touch memory of this rank.
//   stand_in_kernel    before the kernel that routes: says what masked sources would have sent. A block for each
//   pad_masked_kernel  behind the kernel that lays rows out, before any that reads src_info: pads the rows of masked
//                      sources
#pragma once

#include "ferry/detail/cuda/steps/masked_sources.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) stand_in_kernel(const __grid_constant__ StandInParams p) {
  extern __shared__ __align__(16) std::byte stand_in_memory[];
  ptx::await_earlier_kernels();
  const SyncedTeam all = SyncedTeam::of_block();
  if (!all.all(!p.state->has_stopped())) return;
  const Epoch routing = load_relaxed(p.state->dispatched) + 1;
  auto& memory = *reinterpret_cast<MessageMemory*>(stand_in_memory);
  for (int source = static_cast<int>(blockIdx.x); source < p.plan.shape.ranks; source += static_cast<int>(gridDim.x))
    if (p.plan.has_stand_in(source)) StandIn(all, p, routing, source, memory).write();
}

static __global__ void __launch_bounds__(kThreads) pad_masked_kernel(const __grid_constant__ PadMaskedParams p) {
  ptx::await_earlier_kernels();
  if (p.state->has_stopped()) return;
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  for (int source = 0; source < p.plan.shape.ranks; ++source)
    if (p.plan.has_stand_in(source)) pad_rows_of(p, source, warps);
}

}  // namespace ferry::cuda
