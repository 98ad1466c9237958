// Weights that go home with results, as cpu/steps/weights/returned_weights.h. A warp stores those of a result before
// the result's signal leaves, so `result_arrived` says of them, too, that they are there (I25).
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/layout/returned_weights.h"

namespace ferry::cuda {

// Where the weights of a result go. Those of a remote source leave from the send buffer (I15).
template <RankReach Reach>
class ReturnedSlots {
 public:
  __device__ ReturnedSlots(const Plan& plan, const PeerLinks& links) : plan_(plan), links_(links) {}

  // The slot, or the send buffer of it.
  __device__ ReturnedWeights& of(TokenAt at, int index) const {
    std::byte* const place = is_direct(at.source)
                                 ? Reach(links_).heap_of(at.source) + plan_.map.returned(at.token, index)
                                 : send_buffer_of(at, index);
    return *reinterpret_cast<ReturnedWeights*>(place);
  }
  // Puts what was made in the send buffer. A fence must follow before the result's signal (C2). A warp.
  __device__ void put(TokenAt at, int index) const {
    if constexpr (Reach::kHasRemoteRanks) {
      if (is_direct(at.source)) return;
      __syncwarp();
      typename Reach::Puts(links_).put(at.source, plan_.map.returned(at.token, index), send_buffer_of(at, index),
                                       plan_.map.returned_bytes());
    }
  }

 private:
  __device__ bool is_direct(int source) const { return Reach(links_).is_direct(source); }
  __device__ std::byte* send_buffer_of(TokenAt at, int index) const {
    const int sent = plan_.exact ? at.token * plan_.shape.top_k + index : at.token;
    return links_.own + plan_.map.sent_returned(at.source, static_cast<std::size_t>(sent));
  }

  const Plan& plan_;
  const PeerLinks& links_;
};

// Stores the weights of the results that a rank sends. A warp; lane k has the row of the token's k, or kNoRow. I25: a
// value for each row that has one; where it has none, the slots say that.
template <RankReach Reach>
class WeightReturner {
 public:
  __device__ explicit WeightReturner(const CombineParams& p) : p_(p), slots_(p.plan, p.links) {}

  // exact: each row's value goes with the row.
  __device__ void return_each(TokenAt at, std::uint32_t row) const {
    const int k = lane();
    const unsigned local = __ballot_sync(kAllLanes, row != kNoRow);
    if (row != kNoRow) {
      ReturnedWeights& to = slots_.of(at, k);
      to.of_k = has(row) ? 1u : 0u;
      to.value[0] = value(row, k);
    }
    for (unsigned rest = local; rest != 0; rest &= rest - 1) slots_.put(at, __ffs(static_cast<int>(rest)) - 1);
  }
  // by_rank: all go with the sum of the rows. There is a row.
  __device__ void return_together(TokenAt at, int index, std::uint32_t row) const {
    const int k = lane();
    const unsigned with_row = __ballot_sync(kAllLanes, row != kNoRow);
    if (p_.in.has_row_weights_of_k) row = __shfl_sync(kAllLanes, row, __ffs(static_cast<int>(with_row)) - 1);
    const bool is_k = k < p_.plan.shape.top_k;
    ReturnedWeights& to = slots_.of(at, index);
    const unsigned of_k = __ballot_sync(kAllLanes, is_k && has(row));
    if (k == 0) to.of_k = of_k;
    if (is_k) to.value[k] = value(row, k);
    slots_.put(at, index);
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  // I18: rows past those that were given have no value, and kNoRow is past all.
  __device__ bool has(std::uint32_t row) const { return p_.in.row_weights != nullptr && row < p_.in.num_row_weights; }
  __device__ float value(std::uint32_t row, int k) const {
    if (!has(row)) return 0.0f;
    if (!p_.in.has_row_weights_of_k) return p_.in.row_weights[row];
    return p_.in.row_weights[static_cast<std::size_t>(row) * static_cast<std::size_t>(p_.plan.shape.top_k) +
                             static_cast<std::size_t>(k)];
  }

  const CombineParams& p_;
  ReturnedSlots<Reach> slots_;
};

// The slots of results by_rank that come (I9). `namers`: the lanes that name a rank first. A warp.
__device__ inline unsigned coming_slots(const Plan& plan, unsigned namers, int owner, bool comes) {
  if (plan.masked == nullptr) return ~0u;
  int slot = 0;
  for (unsigned rest = namers; rest != 0; rest &= rest - 1)
    slot += __shfl_sync(kAllLanes, owner, __ffs(static_cast<int>(rest)) - 1) < owner ? 1 : 0;
  const bool is_namer = (namers >> (threadIdx.x % 32) & 1u) != 0;
  return __reduce_add_sync(kAllLanes, is_namer && comes ? 1u << slot : 0u);  // no two have one slot
}

// Sums the returned weights of an own token, of which all results have come. For each k it takes the first value as it
// is and adds the others in float32, ranks ascending; 0 if there is none. Relies on I25. `own`: this rank's table.
__device__ inline void sum_returned(const CombineParams& p, const RoutingEntry* own, int token) {
  const Plan& plan = p.plan;
  const int k = static_cast<int>(threadIdx.x % 32);
  const std::size_t first = static_cast<std::size_t>(token) * static_cast<std::size_t>(plan.shape.top_k);
  const bool is_k = k < plan.shape.top_k;
  const int expert = is_k ? plan.code.expert(own[first + static_cast<std::size_t>(k)].code) : -1;
  const int owner = expert < 0 || expert >= plan.shape.experts ? -1 : plan.owner_of(expert);  // I18: of a handle, too
  const unsigned namers = first_namers(k, owner);
  const bool comes = owner >= 0 && !plan.is_masked(owner);  // I11: since the handle's dispatch
  const unsigned coming = coming_slots(plan, namers, owner, comes);
  const int ranks = __popc(namers);
  float sum = 0.0f;
  bool found = false;
  const auto add = [&](int slot, int bit) {
    const auto& weights = *reinterpret_cast<const ReturnedWeights*>(p.links.own + plan.map.returned(token, slot));
    if ((weights.of_k >> bit & 1u) == 0) return;
    sum = found ? sum + weights.value[bit] : weights.value[bit];
    found = true;
  };
  if (plan.exact && comes) add(k, 0);
  for (int slot = 0; !plan.exact && is_k && slot < ranks; ++slot)
    if ((coming >> slot & 1u) != 0) add(slot, k);
  if (is_k) p.out.weights[first + static_cast<std::size_t>(k)] = sum;
}

}  // namespace ferry::cuda
