// Small kernels for router weights, so that the kernels that carry tokens need no code for them. They neither write at
// other ranks nor wait for them.
//   widen_weights_kernel      before a kernel that reads weights, where they are bf16 or f16: the same as float32
//   with_late_weights_kernel  behind late_weights_kernels.cuh: makes the rows that combine goes by
#pragma once

#include "ferry/detail/cuda/kernels/calls/round_clock.cuh"
#include "ferry/detail/cuda/steps/weights/late_weights.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) widen_weights_kernel(const __grid_constant__ WideParams p) {
  ptx::await_earlier_kernels();
  widen_weights(p.weights, p.count, p.to, threads_of_grid());
}

static __global__ void __launch_bounds__(kThreads) with_late_weights_kernel(const __grid_constant__ LateParams p) {
  ptx::await_earlier_kernels();
  if (p.links.state->has_stopped()) return;
  const Plan& plan = p.plan;
  const bool are_sums =
      p.header == nullptr ? p.by_source : p.header->order == static_cast<std::int32_t>(RowOrder::by_source);
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  const int most = static_cast<int>(p.arrived.starts.tokens[plan.shape.ranks]);
  const TokenSequence tokens(plan, max(0, min(most, plan.shape.max_tokens)), plan.rank);  // I18: of a handle, too
  for (int position = warps.index; position < tokens.length; position += warps.count)
    if (const TokenAt at = tokens.at(position); at.token < static_cast<int>(p.arrived.starts.tokens[at.source]))
      with_late_weights(p, at, are_sums);
}

}  // namespace ferry::cuda
