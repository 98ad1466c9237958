// A kernel behind all other kernels of a dispatch that may have had no room for some rows (Overflow): hides those rows
// from combine.
#pragma once

#include "ferry/detail/cuda/steps/overflow.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) forget_rows_kernel(const __grid_constant__ MoreRowsParams p) {
  ptx::await_earlier_kernels();
  if (p.state->has_stopped()) return;
  const DispatchLeft left{p, load_relaxed(p.state->dispatched), room_of(p.out)};
  const FixedShare block{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  const FixedShare warps = teams_of(32, block);
  const TokenSequence tokens(p.plan, p.starts, p.plan.rank);
  for (int position = warps.index; position < tokens.length; position += warps.count)
    if (const TokenAt at = tokens.at(position); at.token < left.tokens_of(at.source))
      forget_rows(left, at, p.arrived.rows);
  if (block.index != 0 || threadIdx.x != 0) return;
  std::uint32_t* const end = p.arrived.starts.group + p.plan.groups();  // the rows that combine needs
  *end = min(*end, left.room.rows);
}

}  // namespace ferry::cuda
