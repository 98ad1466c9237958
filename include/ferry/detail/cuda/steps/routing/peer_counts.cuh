// PeerCounts: messages or bytes by rank, as a kernel sends them. Each team of a block has counts of its own in shared
// memory and adds to them without atomics; at its end the block adds them to the counts of the exchange. There is room
// for kMaxGpuRanks. Ranks after those, which only a world with remote ranks may have, are counted in the exchange's at
// once.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/state/block_roles.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/dispatch_send.h"

namespace ferry::cuda {

// In shared memory.
using PeerCounts = std::uint64_t[kMostTeams][kMaxGpuRanks];

// What one team counts.
template <RankReach Reach>
class PeerCounter {
 public:
  // `of_exchange`: [ranks].
  __device__ PeerCounter(PeerCounts& counts, int team, DeviceWord<std::uint64_t>* of_exchange)
      : of_team_(counts[team]), of_exchange_(of_exchange) {}
  // One thread for a peer at a time.
  __device__ void add(int peer, std::uint64_t count) const {
    if constexpr (Reach::kHasRemoteRanks) {
      if (peer >= kMaxGpuRanks) {
        fetch_add_relaxed(of_exchange_[peer], count);
        return;
      }
    }
    of_team_[peer] += count;
  }

 private:
  std::uint64_t* of_team_;
  DeviceWord<std::uint64_t>* of_exchange_;
};

// What a sending team of a dispatch counts.
template <RankReach Reach>
struct DispatchCounter {
  std::uint64_t non_finite;
  PeerCounter<Reach> messages;
  PeerCounter<Reach> bytes;

  __device__ void add_non_finite(std::uint64_t count) { non_finite += count; }
  __device__ void add_message(int peer, std::uint64_t size) const {
    messages.add(peer, 1);
    bytes.add(peer, size);
  }
};
static_assert(SendCounter<DispatchCounter<DirectReach>>);

// The ranks that have counts in shared memory.
template <RankReach Reach>
__device__ int num_counted(const Plan& plan) {
  if constexpr (Reach::kHasRemoteRanks) return min(plan.shape.ranks, kMaxGpuRanks);
  return plan.shape.ranks;
}

// A barrier must follow.
template <RankReach Reach>
__device__ void clear_counts(const SyncedTeam& all, const Plan& plan, PeerCounts& counts) {
  const auto words = static_cast<unsigned>(kMostTeams * num_counted<Reach>(plan));
#pragma unroll 1
  for (unsigned i = all.thread(); i < words; i += all.size()) counts[i % kMostTeams][i / kMostTeams] = 0;
}

// Adds the counts of all teams to those of the exchange.
template <RankReach Reach>
__device__ void add_counts(const SyncedTeam& all, const Plan& plan, const PeerCounts& counts,
                           DeviceWord<std::uint64_t>* of_exchange) {
  for (int peer = all.thread(); peer < num_counted<Reach>(plan); peer += all.size()) {
    std::uint64_t sum = 0;
    for (int team = 0; team < kMostTeams; ++team) sum += counts[team][peer];
    if (sum != 0) fetch_add_relaxed(of_exchange[peer], sum);
  }
}

}  // namespace ferry::cuda
