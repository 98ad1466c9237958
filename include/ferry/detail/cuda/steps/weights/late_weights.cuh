// Late weights of a combine, as cpu/steps/weights/late_weights.h. They are in place before the kernels of combine
// begin, as weights of rows that a dispatch left; so those kernels know nothing of them. Weights of a replay travel
// with its routing, since a GPU routes again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/weights/wide_weights.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/late_weights.h"

namespace ferry::cuda {

__device__ inline int num_late_weights(const LateParams& p) {
  return p.weights.data != nullptr ? p.num_tokens * p.plan.shape.top_k : 0;
}
__device__ inline std::size_t late_bytes(const LateParams& p) {
  return sizeof(LateHeader) + static_cast<std::size_t>(num_late_weights(p)) * sizeof(float);
}

// Stores at every direct rank, this one too, whether this one gives late weights, and the weights of all its tokens.
// I24: the old ones have been read. One thread stores each weight.
template <RankReach Reach>
__device__ void put_late_weights(const LateParams& p, const FixedShare& threads) {
  const Plan& plan = p.plan;
  const Reach reach(p.links);
  const std::size_t at = plan.map.late_weights(kLateCopyOfCombines, plan.rank);
  const int count = num_late_weights(p);
  for (int peer = threads.index; peer < plan.shape.ranks; peer += threads.count) {
    if (plan.is_masked(peer)) continue;
    if (reach.is_direct(peer))
      *reinterpret_cast<LateHeader*>(reach.heap_of(peer) + at) = {p.weights.data != nullptr ? 1u : 0u, {}};
    if (peer != plan.rank) fetch_add_relaxed(p.bytes[peer], std::uint64_t{late_bytes(p)});
  }
  for (int i = threads.index; i < count; i += threads.count) {
    const float weight = wide_weight(p.weights, i);
    for (int peer = 0; peer < plan.shape.ranks; ++peer)
      if (!plan.is_masked(peer) && reach.is_direct(peer))
        reinterpret_cast<float*>(reach.heap_of(peer) + at + sizeof(LateHeader))[i] = weight;
  }
}

// I24: this rank's are there, at every rank. The kernel that stored them has ended. A remote rank gets them from this
// rank's own copy, which stays for as long as the copies at other ranks (I15). A warp.
template <RankReach Reach>
__device__ void post_weighed(const LateParams& p, Epoch number) {
  const Plan& plan = p.plan;
  const Reach reach(p.links);
  const std::size_t word = plan.map.weighed(plan.rank);
  if constexpr (Reach::kHasRemoteRanks) {
    const std::size_t at = plan.map.late_weights(kLateCopyOfCombines, plan.rank);
    for (int peer = 0; peer < plan.shape.ranks; ++peer)
      if (!plan.is_masked(peer) && !reach.is_direct(peer))
        typename Reach::Puts(p.links).put_signal(peer, at, p.links.own + at, late_bytes(p), word, number);
  }
  for (int peer = static_cast<int>(threadIdx.x); peer < plan.shape.ranks; peer += SyncedTeam::kWidth)
    if (!plan.is_masked(peer) && reach.is_direct(peer)) reach.signal(peer, word, number);
}
template <class Waits>
__device__ void await_weighed(const LateParams& p, Epoch number) {
  const HeapMap& map = p.plan.map;
  const Waits waits(p.links);
  waits.wait_for_each(
      SyncedTeam(SyncedTeam::kWidth), p.plan.shape.ranks, [&](int peer) { return map.weighed(peer); }, number,
      [](int peer) {
        return WaitSite{Operation::combine, Phase::weights, peer, -1};
      },
      p.plan.masked);
}

// The rows of a token that came, with its late weights, or as they were. Relies on I24. A warp.
__device__ inline void with_late_weights(const LateParams& p, TokenAt at, bool are_sums) {
  const Plan& plan = p.plan;
  const int k = static_cast<int>(threadIdx.x % 32);
  if (k >= plan.shape.top_k) return;
  const std::byte* late = p.links.own + plan.map.late_weights(kLateCopyOfCombines, at.source);
  const std::size_t entry =
      static_cast<std::size_t>(at.token) * static_cast<std::size_t>(plan.shape.top_k) + static_cast<std::size_t>(k);
  const std::size_t index = static_cast<std::size_t>(at.source) * static_cast<std::size_t>(plan.shape.max_tokens) *
                                static_cast<std::size_t>(plan.shape.top_k) +
                            entry;
  HandleRow row = p.arrived.rows[index];
  if (!are_sums && reinterpret_cast<const LateHeader*>(late)->is_given != 0)
    row.weight = reinterpret_cast<const float*>(late + sizeof(LateHeader))[entry];
  p.rows[index] = row;
}

}  // namespace ferry::cuda
