// A small kernel of a combine whose weights come home (ExchangeOptions::returns_weights), behind the half that
// receives: adds up what came. It waits for no rank.
#pragma once

#include "ferry/detail/cuda/kernels/calls/round_clock.cuh"
#include "ferry/detail/cuda/steps/weights/returned_weights.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) sum_returned_kernel(const __grid_constant__ ReturnedParams p) {
  ptx::await_earlier_kernels();
  if (p.links.state->second_half_has_stopped(p.own != nullptr)) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  const auto* own = p.own != nullptr
                        ? p.own
                        : reinterpret_cast<const RoutingEntry*>(p.links.own + p.plan.map.table(routing, p.plan.rank));
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  for (int token = warps.index; token < p.num_tokens; token += warps.count) sum_returned(p, own, token);
}

}  // namespace ferry::cuda
