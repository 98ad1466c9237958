// A dispatch to which some rank gave more tokens than it can take, at a rank whose host does not ask what comes. The
// half that receives finds it out, and says so in DeviceState::refused. Kernels that follow then do nothing, as after a
// failure: what the host enqueues before it knows is no call. It takes no number (I13), and sends nothing. When the
// host has thrown, it enqueues this kernel behind all that did nothing.
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

inline constexpr int kForgetThreads = 32;

// Not every rank waits for what this one put in the refused dispatch, so it has to land first. Blocks that did nothing
// have arrived all the same (round_clock.cuh).
template <DeviceFabric F>
__global__ void __launch_bounds__(kForgetThreads) forget_refused_kernel(const __grid_constant__ ForgetRefusedParams p) {
  ptx::await_earlier_kernels();
  if (threadIdx.x != 0) return;
  if constexpr (F::kHasRemoteRanks) typename F::Reach::Puts(p.links).quiet();
  DeviceState& state = *p.links.state;
  state.started_before = load_relaxed(state.started);
  store_release(state.refused, Epoch{0});
}

}  // namespace ferry::cuda
