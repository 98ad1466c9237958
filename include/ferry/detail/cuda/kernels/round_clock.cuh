// I13: the number of a round lives on the device, so that a captured graph replays. Every block reads it when it
// begins; when all have, the first block moves it on, long before the kernel ends.
#pragma once

#include "ferry/detail/cuda/kernels/device_state.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/round.h"

namespace ferry::cuda {

// What a block learns when it begins.
struct RoundStart {
  Epoch epoch = 0;      // in a dispatch that sends, the round that begins; else the one that is open
  bool broken = false;  // an earlier call failed: nothing may be done
};

// By one thread, for the block: the words are one cache line for the whole device, and thousands of warps that ask for
// it one after the other take microseconds.
__device__ inline RoundStart read_round(const SyncedTeam& all, const DeviceState& state, bool begins) {
  if (all.thread() != 0) return {};
  return {load_relaxed(state.dispatched) + (begins ? 1 : 0), load_relaxed(state.failed) != 0};
}
// Then all threads know. Apart, so that other work can come between.
__device__ inline RoundStart share_round(const SyncedTeam& all, const RoundStart& seen, RoundStart& shared) {
  if (all.thread() == 0) shared = seen;
  all.sync();
  return shared;
}

// By one thread of every block, behind the barrier of share_round: then the epoch was read, and no fence, which
// would hold the block up, has to say so.
__device__ inline void arrive(DeviceState& state) { fetch_add_relaxed(state.started, std::uint64_t{1}); }

// By one thread of the first of `blocks`. False: a block did not start, which a resident one does.
template <class F>
__device__ bool advance_epoch(DeviceState& state, F& fabric, Epoch epoch, int blocks) {
  const std::uint64_t all = state.started_before + static_cast<std::uint64_t>(blocks);
  if (!fabric.wait_for_block(state.started, all)) return false;
  state.started_before = all;
  store_release(state.bad_ids[(epoch + 1) & 1], 0u);
  store_release(state.token_tickets[(epoch + 1) & 1], 0u);
  store_release(state.result_tickets, 0u);  // of this round's combine, which has not begun
  fetch_add_relaxed(state.dispatches, std::uint64_t{1});
  store_release(state.dispatched, epoch);
  return true;
}

// What the teams of a block count by rank. A barrier must follow.
__device__ inline void clear_counts(const SyncedTeam& all, const Plan& plan, std::uint64_t (*of_team)[kMaxGpuRanks]) {
  for (int i = all.thread(); i < kMostTeams * plan.shape.ranks; i += all.size())
    of_team[i % kMostTeams][i / kMostTeams] = 0;
}

// What the teams of a block counted by rank, to the exchange's.
__device__ inline void add_counts(const SyncedTeam& all, const Plan& plan, const std::uint64_t (*of_team)[kMaxGpuRanks],
                                  int teams, DeviceWord<std::uint64_t>* to) {
  for (int peer = all.thread(); peer < plan.shape.ranks; peer += all.size()) {
    std::uint64_t sum = 0;
    for (int team = 0; team < teams; ++team) sum += of_team[team][peer];
    if (sum != 0) fetch_add_relaxed(to[peer], sum);
  }
}

}  // namespace ferry::cuda
