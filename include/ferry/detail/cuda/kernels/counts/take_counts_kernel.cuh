// take_counts_kernel: behind a dispatch by counts, one block. Adds up what all sources gave for this rank's experts,
// and tells the host of a rank that gave ids (steps/routing/given_counts.cuh). I1 and I2: the kernel before it has seen
// `routed` of all ranks, and no rank writes these counts again before this one has begun the next dispatch. Behind a
// dispatch with a handle it only tells the host of outputs that a handle of a dispatch by counts cannot fill.
#pragma once

#include "ferry/detail/cuda/steps/routing/given_counts.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) take_counts_kernel(const __grid_constant__ TakeCountsParams p) {
  ptx::await_earlier_kernels();
  if (p.state->has_stopped()) return;
  if (p.replayed != nullptr) {
    if (threadIdx.x == 0 && p.replayed->by_counts != 0) report_bad_counts(*p.record, {BadCounts::replayed, 0, 0});
    return;
  }
  const Epoch routing = load_relaxed(p.state->dispatched);
  const int experts = p.counts == nullptr ? 0 : p.plan.local_experts();
  for (int local = static_cast<int>(threadIdx.x); local < experts; local += kThreads)
    p.counts[local] =
        static_cast<std::int32_t>(min(given_count_of(p.plan, p.heap, routing, local), std::int64_t{INT32_MAX}));
  if (threadIdx.x != 0) return;
  const std::int32_t other = find_other_input(p.plan, p.heap, routing);
  if (other >= 0) report_bad_counts(*p.record, {BadCounts::differ, static_cast<std::uint32_t>(other), 0});
}

}  // namespace ferry::cuda
