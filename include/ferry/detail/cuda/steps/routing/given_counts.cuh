// A dispatch by counts, as cpu/steps/routing/given_counts.h. The kernels that carry tokens are given ids that name the
// first expert of each rank, and know nothing of counts. So counts go ahead of them, and are added up behind them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/team_group.cuh"

namespace ferry::cuda {

// Of many threads that find something wrong, any one is heard.
__device__ inline void report_bad_counts(HostRecord& record, const BadCounts& bad) {
  store_release(record.bad_counts, bad.word());
}

// The ids of this rank's tokens. A rank too many, or a flag that is neither 0 nor 1, is left out and reported.
__device__ inline void name_ranks(const GiveCountsParams& p, const FixedShare& threads) {
  const int ranks = p.plan.shape.ranks;
  const int top_k = p.plan.shape.top_k;
  const int most = min(ranks, top_k);
  for (int token = threads.index; token < p.num_tokens; token += threads.count) {
    const std::uint8_t* flags = p.in_rank + static_cast<std::size_t>(token) * static_cast<std::size_t>(ranks);
    std::int32_t* ids = p.ids + static_cast<std::size_t>(token) * static_cast<std::size_t>(top_k);
    const auto at = static_cast<std::uint32_t>(token);
    int named = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::uint32_t flag = flags[rank];
      if (flag > 1)
        report_bad_counts(*p.links.record, {BadCounts::flag, at, static_cast<std::uint32_t>(rank) << 8 | flag});
      if (flag == 1 && named == most)
        report_bad_counts(*p.links.record, {BadCounts::many_ranks, at, static_cast<std::uint32_t>(most)});
      if (flag == 1 && named < most) ids[named++] = p.plan.experts_of(rank).first;
    }
    for (; named < top_k; ++named) ids[named] = -1;
  }
}

// This rank's own copy of the counts, from which they go to the others (I15).
__device__ inline void copy_given_counts(const SyncedTeam& g, const GiveCountsParams& p, std::int32_t* to) {
  for (int expert = g.thread(); expert < p.plan.shape.experts; expert += g.size()) {
    const std::int32_t count = p.counts[expert];
    to[expert] = max(count, 0);
    if (count < 0)
      report_bad_counts(*p.links.record,
                        {BadCounts::negative, static_cast<std::uint32_t>(expert), static_cast<std::uint32_t>(count)});
  }
}

// The counts for the experts of `peer`, and the number of the routing that has them. `from`: of copy_given_counts. A
// warp. I2: `routed`, which a later kernel releases, comes after both.
template <RankReach Reach>
__device__ void put_given_counts(const PeerLinks& links, const Plan& plan, int peer, const std::int32_t* from,
                                 Epoch routing) {
  const ExpertRange experts = plan.experts_of(peer);
  const std::size_t to = plan.map.given_counts(routing, plan.rank);
  const std::size_t word = plan.map.header(routing, plan.rank) + offsetof(RoutingHeader, counts_routing);
  const int lane = static_cast<int>(threadIdx.x) % SyncedTeam::kWidth;
  if constexpr (Reach::kHasRemoteRanks) {
    if (!Reach(links).is_direct(peer)) {
      const typename Reach::Puts transport(links);
      transport.put(peer, to, reinterpret_cast<const std::byte*>(from + experts.first),
                    static_cast<std::size_t>(experts.count) * sizeof(std::int32_t));
      if (lane != 0) return;
      transport.store32(peer, word, low_of(routing));
      transport.store32(peer, word + sizeof(std::uint32_t), high_of(routing));
      return;
    }
  }
  std::byte* const heap = Reach(links).heap_of(peer);
  auto* theirs = reinterpret_cast<std::int32_t*>(heap + to);
  for (int local = lane; local < experts.count; local += SyncedTeam::kWidth)
    theirs[local] = from[experts.first + local];
  if (lane == 0) *reinterpret_cast<std::uint64_t*>(heap + word) = routing;
}

__device__ inline bool is_by_counts(const Plan& plan, const std::byte* heap, int source, Epoch routing) {
  return reinterpret_cast<const RoutingHeader*>(heap + plan.map.header(routing, source))->counts_routing == routing;
}

// The smallest rank that gave counts where this one gave ids, or ids where this one gave counts; -1: none. Relies on
// I2. One thread.
__device__ inline std::int32_t find_other_input(const Plan& plan, const std::byte* heap, Epoch routing) {
  const bool own = is_by_counts(plan, heap, plan.rank, routing);
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (!plan.is_masked(source) && is_by_counts(plan, heap, source, routing) != own) return source;
  return -1;
}

// What all sources gave for an expert of this rank. Relies on I2.
__device__ inline std::int64_t given_count_of(const Plan& plan, const std::byte* heap, Epoch routing, int local) {
  std::int64_t sum = 0;
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (!plan.is_masked(source))
      sum += reinterpret_cast<const std::int32_t*>(heap + plan.map.given_counts(routing, source))[local];
  return sum;
}

}  // namespace ferry::cuda
