// When a block begins and ends its steps. `times` is null unless a Trace records: then there is nothing else to do.
#pragma once

#include "ferry/detail/cuda/state/step_times.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"

namespace ferry::cuda {

// One thread writes for its team. These are not inlined, and all threads call them: the kernels have no registers to
// spare, and a branch that only one thread takes costs more of them.
__device__ __noinline__ static void note_begin(StepTimes* times, KernelStep step, int thread) {
  if (thread == 0) fetch_max_relaxed(times->begin[static_cast<int>(step)], ~ptx::global_nanoseconds());
}
__device__ __noinline__ static void note_end(StepTimes* times, KernelStep step, int thread) {
  if (thread == 0) fetch_max_relaxed(times->end[static_cast<int>(step)], ptx::global_nanoseconds());
}
__device__ __noinline__ static void note_change(StepTimes* times, KernelStep from, KernelStep to, int thread) {
  note_end(times, from, thread);
  note_begin(times, to, thread);
}

// After await_earlier_kernels: the kernel before this one clears the times.
__device__ inline void begin_step(StepTimes* times, KernelStep step, const SyncedTeam& team) {
  if (times != nullptr) note_begin(times, step, team.thread());
}
// When all of the team have done it.
__device__ inline void end_step(StepTimes* times, KernelStep step, const SyncedTeam& team) {
  if (times != nullptr) note_end(times, step, team.thread());
}
__device__ inline void change_step(StepTimes* times, KernelStep from, KernelStep to, const SyncedTeam& team) {
  if (times != nullptr) note_change(times, from, to, team.thread());
}
// Of a step whose warps end one after the other.
__device__ inline void end_step_together(StepTimes* times, KernelStep step, const SyncedTeam& all) {
  if (times == nullptr) return;
  all.sync();
  end_step(times, step, all);
}

}  // namespace ferry::cuda
