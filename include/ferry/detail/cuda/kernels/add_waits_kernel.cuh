// A kernel of one warp behind a combine whose caller asks how long it waited for each rank (CombineOutput::waited_ns).
#pragma once

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(SyncedTeam::kWidth)
    add_waits_kernel(const __grid_constant__ AddWaitsParams p) {
  ptx::await_earlier_kernels();
  if (p.state->second_half_has_stopped(p.is_extra)) return;
  for (int peer = static_cast<int>(threadIdx.x); peer < p.ranks; peer += SyncedTeam::kWidth)
    p.to[peer] += static_cast<std::int64_t>(load_relaxed(p.waited_ns[peer]) - p.before[peer]);
}

}  // namespace ferry::cuda
