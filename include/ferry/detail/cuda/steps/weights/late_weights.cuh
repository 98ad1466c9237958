// Late weights of a combine, as cpu/steps/weights/late_weights.h. The kernel of the combine stores them at the rows'
// ranks when it begins, and its blocks that send wait for those of all ranks. Weights of a replay travel with its
// routing, since a GPU routes again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/f32_weights.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/late_weights.h"

namespace ferry::cuda {

// exact: the weights stay at home.
__device__ inline bool gives_late_weights(const CombineParams& p) {
  return !p.plan.exact && p.in.weights.data != nullptr;
}
__device__ inline int num_late_weights(const CombineParams& p) {
  return gives_late_weights(p) ? p.late_tokens * p.plan.shape.top_k : 0;
}
__device__ inline std::size_t late_bytes(const CombineParams& p) {
  return sizeof(LateHeader) + static_cast<std::size_t>(num_late_weights(p)) * sizeof(float);
}
// The first blocks of the grid store late weights: as many as have a weight for each thread.
__device__ inline int late_putters(const CombineParams& p) {
  return max(1, min(num_late_weights(p) / kThreads, static_cast<int>(gridDim.x)));
}

// Stores at every direct rank, this one too, whether this one gives late weights, and the weights of all its tokens.
// I24: the old ones have been read. One thread stores each weight.
template <RankReach Reach>
__device__ void put_late_weights(const CombineParams& p, const FixedShare& threads) {
  const Plan& plan = p.plan;
  const Reach reach(p.links);
  const std::size_t at = plan.map.late_weights(kLateCopyOfCombines, plan.rank);
  const int count = num_late_weights(p);
#pragma unroll 1
  for (int peer = threads.index; peer < plan.shape.ranks; peer += threads.count) {
    if (plan.is_masked(peer)) continue;
    if (reach.is_direct(peer))
      *reinterpret_cast<LateHeader*>(reach.heap_of(peer) + at) = {gives_late_weights(p) ? 1u : 0u, {}};
    if (peer != plan.rank) fetch_add_relaxed(p.stats.bytes[peer], std::uint64_t{late_bytes(p)});
  }
#pragma unroll 1
  for (int i = threads.index; i < count; i += threads.count) {
    const float weight = f32_weight(p.in.weights, i);
#pragma unroll 1
    for (int peer = 0; peer < plan.shape.ranks; ++peer)
      if (!plan.is_masked(peer) && reach.is_direct(peer))
        reinterpret_cast<float*>(reach.heap_of(peer) + at + sizeof(LateHeader))[i] = weight;
  }
}

// All threads of `blocks` blocks call it. True in the block that comes last: what the others stored before comes before
// what it stores from now on.
__device__ inline bool comes_last(const SyncedTeam& all, DeviceWord<std::uint32_t>& arrived, int blocks) {
  all.sync();
  if (blocks == 1) return true;
  bool is_last = false;
  if (all.thread() == 0) {
    is_last = fetch_add_acq_rel(arrived, 1u) + 1 == static_cast<std::uint32_t>(blocks);
    if (is_last) store_relaxed(arrived, 0u);  // for the next combine
  }
  return all.any(is_last);
}

// I24: this rank's are there, at every rank. A remote rank gets them from this rank's own copy, which stays for as long
// as the copies at other ranks (I15). The first warp of a block.
template <RankReach Reach>
__device__ void post_weighed(const CombineParams& p, Epoch number) {
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

// Of a block that sends. False: a rank did not come.
template <class Waits>
__device__ bool await_weighed(const CombineParams& p, const SyncedTeam& all, Epoch number) {
  const HeapMap& map = p.plan.map;
  return Waits(p.links).wait_for_each(
      all, p.plan.shape.ranks, [&](int peer) { return map.weighed(peer); }, number,
      [](int peer) {
        return WaitSite{Operation::combine, Phase::weights, peer, -1};
      },
      p.plan.masked);
}

// All threads of every block of a combine that sends call it. `waits`: the block goes on to send. False: a rank did not
// come.
template <DeviceFabric F>
__device__ __noinline__ bool exchange_late_weights(const CombineParams& p, Epoch number, bool waits) {
  const SyncedTeam all = SyncedTeam::of_block();
  const int block = static_cast<int>(blockIdx.x), putters = late_putters(p);
  if (block < putters) {
    put_late_weights<typename F::Reach>(p, {block * kThreads + all.thread(), putters * kThreads});
    if (comes_last(all, p.links.state->late_putters, putters) && all.thread() < SyncedTeam::kWidth)
      post_weighed<typename F::Reach>(p, number);
  }
  return !waits || await_weighed<typename F::Waits>(p, all, number);
}

// The late weights of the tokens that came, for a rank whose rows they multiply.
class LateWeights {
 public:
  __device__ explicit LateWeights(const CombineParams& p) : p_(p) {
    if (!p.plan.map.has_late_weights() || p.plan.exact) return;
    multiply_ = p.header == nullptr ? !p.by_source : p.header->order != static_cast<std::int32_t>(RowOrder::by_source);
  }
  // The weight of a token's k: the late one where its source gave some, else that of the routing. Relies on I24.
  __device__ float weight(TokenAt at, int k, float of_routing) const {
    const Plan& plan = p_.plan;
    if (!multiply_ || k >= plan.shape.top_k) return of_routing;
    const std::byte* late = p_.links.own + plan.map.late_weights(kLateCopyOfCombines, at.source);
    if (reinterpret_cast<const LateHeader*>(late)->is_given == 0) return of_routing;
    const std::size_t entry =
        static_cast<std::size_t>(at.token) * static_cast<std::size_t>(plan.shape.top_k) + static_cast<std::size_t>(k);
    return reinterpret_cast<const float*>(late + sizeof(LateHeader))[entry];
  }

 private:
  const CombineParams& p_;
  bool multiply_ = false;
};

}  // namespace ferry::cuda
