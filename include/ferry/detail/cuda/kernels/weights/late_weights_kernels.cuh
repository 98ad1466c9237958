// Two small kernels before a combine of an exchange with late_weights (steps/late_weights.cuh).
//   put_late_weights_kernel   stores the weights of this rank's tokens at every direct rank
//   await_weighed_kernel      one warp: says that they are there, puts them to remote ranks, and waits until all ranks
//                             have said so
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/kernels/calls/round_clock.cuh"
#include "ferry/detail/cuda/steps/weights/late_weights.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
__global__ void __launch_bounds__(kThreads) put_late_weights_kernel(const __grid_constant__ LateParams p) {
  ptx::await_earlier_kernels();
  if (p.links.state->has_stopped()) return;
  put_late_weights<typename F::Reach>(p, threads_of_grid());
}

template <DeviceFabric F>
__global__ void __launch_bounds__(SyncedTeam::kWidth) await_weighed_kernel(const __grid_constant__ LateParams p) {
  ptx::await_earlier_kernels();
  DeviceState& state = *p.links.state;
  if (__any_sync(kAllLanes, state.has_stopped()) != 0) return;  // all have looked before one of them may fail below
  const Epoch number =
      p.is_extra ? load_relaxed(state.extra_result) : load_relaxed(state.dispatched) + load_relaxed(state.extra);
  post_weighed<typename F::Reach>(p, number);
  await_weighed<typename F::Waits>(p, number);
}

}  // namespace ferry::cuda
