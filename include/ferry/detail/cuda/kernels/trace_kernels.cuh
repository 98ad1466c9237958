// Two small kernels around each kernel that carries tokens, while a Trace records: they write when it began and ended,
// and for whom it waited. Only when its blocks did which step, the kernel writes by itself (step_clock.cuh). A stream
// runs them one after the other, and an exchange has no kernels on two streams at once.
#pragma once

#include "ferry/detail/cuda/state/trace_records.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"

namespace ferry::cuda {

inline constexpr int kTraceThreads = SyncedTeam::kWidth;

static __global__ void __launch_bounds__(kTraceThreads) begin_record_kernel(const __grid_constant__ TraceParams p) {
  ptx::await_earlier_kernels();
  const std::uint64_t number = load_relaxed(p.records.count());
  for (int peer = static_cast<int>(threadIdx.x); peer < p.records.ranks; peer += kTraceThreads)
    p.records.waited_ns(number)[peer] = load_relaxed(p.waited_ns[peer]);
  if (threadIdx.x != 0) return;
  p.records.steps() = {};
  p.records.record(number) = {p.kind, 0, ptx::global_nanoseconds(), 0, p.enqueued, {}};
}

static __global__ void __launch_bounds__(kTraceThreads) end_record_kernel(const __grid_constant__ TraceParams p) {
  ptx::await_earlier_kernels();
  const std::uint64_t now = ptx::global_nanoseconds();
  const std::uint64_t number = load_relaxed(p.records.count());
  for (int peer = static_cast<int>(threadIdx.x); peer < p.records.ranks; peer += kTraceThreads)
    p.records.waited_ns(number)[peer] = load_relaxed(p.waited_ns[peer]) - p.records.waited_ns(number)[peer];
  SyncedTeam(kTraceThreads).sync();
  if (threadIdx.x != 0) return;
  p.records.record(number).dispatch = load_relaxed(p.state->dispatched);
  p.records.record(number).end = now;
  p.records.record(number).steps = p.records.steps();
  store_release(p.records.count(), number + 1);
}

}  // namespace ferry::cuda
