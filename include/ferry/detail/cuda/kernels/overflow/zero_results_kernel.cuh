// A kernel before a combine whose dispatch may have had no room for some rows (Overflow): sends the results that no row
// makes any more, of zeros.
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/steps/overflow.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
__global__ void __launch_bounds__(kThreads) zero_results_kernel(const __grid_constant__ ZeroResultsParams p) {
  ptx::await_earlier_kernels();
  const DeviceState& state = *p.links.state;
  if (state.has_stopped()) return;
  const Epoch routing = load_relaxed(state.dispatched);
  const Epoch epoch = p.is_extra ? load_relaxed(state.extra_result) : routing + load_relaxed(state.extra);
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  const int most = static_cast<int>(p.arrived.starts.tokens[p.plan.shape.ranks]);
  const TokenSequence tokens(p.plan, max(0, min(most, p.plan.shape.max_tokens)), p.plan.rank + 1);  // I18: of a handle
  for (int position = warps.index; position < tokens.length; position += warps.count)
    if (const TokenAt at = tokens.at(position); at.token < tokens_to_answer(p.plan, p.arrived, at.source))
      send_zeros_of<typename F::Reach>(p, at, routing, epoch);
}

}  // namespace ferry::cuda
