// Weights that go home with results, as cpu/steps/weights/returned_weights.h, by two passes around the combine. The
// first ends before a result leaves. So `result_arrived` says of its weights, too, that they are there (I25), and the
// kernels of combine know nothing of them. A warp has a token.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/routing/local_entries.cuh"
#include "ferry/detail/cuda/steps/routing/peer_counts.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/layout/returned_weights.h"

namespace ferry::cuda {

// Sends the returned weights of the tokens that came. They go to a remote source from the send buffer (I15).
template <RankReach Reach>
class WeightReturner {
 public:
  // `routing`: of the newest dispatch. `bytes_sent`: of this warp.
  __device__ WeightReturner(const ReturnedParams& p, Epoch routing, const PeerCounter<Reach>& bytes_sent)
      : p_(p), routing_(routing), bytes_sent_(bytes_sent) {}

  // I25: a value for each of its rows that has one; where it has none, the slots say that.
  __device__ void return_weights(TokenAt at) const {
    const Plan& plan = p_.plan;
    const int k = static_cast<int>(threadIdx.x % 32);
    const std::size_t token = static_cast<std::size_t>(at.source) * static_cast<std::size_t>(plan.shape.max_tokens) +
                              static_cast<std::size_t>(at.token);
    const std::size_t first = token * static_cast<std::size_t>(plan.shape.top_k);
    const std::uint32_t row = k < plan.shape.top_k ? p_.arrived.rows[first + static_cast<std::size_t>(k)].row : kNoRow;
    const unsigned with_row = __ballot_sync(kAllLanes, row != kNoRow);
    const unsigned local = p_.may_lack_rows ? local_lanes(at, k) : with_row;
    if (local == 0) return;
    if (plan.exact)
      return_each(at, k, local, row);
    else
      return_together(at, k, p_.arrived.slots[token], row_of_lane(row, with_row));
    const int results = plan.exact ? __popc(local) : 1;
    if (k == 0) bytes_sent_.add(at.source, static_cast<std::uint64_t>(results) * plan.map.returned_bytes());
  }

 private:
  // Lanes whose entry names an expert of this rank, whether or not its row has room.
  __device__ unsigned local_lanes(TokenAt at, int k) const {
    const LocalEntries entries{p_.plan, p_.links.own, routing_, p_.kept};
    return __ballot_sync(kAllLanes, k < p_.plan.shape.top_k && entries.has(at, k));
  }
  // The row whose value a lane returns: its own; by_source that of the token.
  __device__ std::uint32_t row_of_lane(std::uint32_t row, unsigned with_row) const {
    if (!p_.has_row_weights_of_k || with_row == 0) return row;
    return __shfl_sync(kAllLanes, row, __ffs(static_cast<int>(with_row)) - 1);
  }
  // I18: rows past those that were given have no value, and kNoRow is past all.
  __device__ bool has(std::uint32_t row) const { return p_.row_weights != nullptr && row < p_.num_row_weights; }
  __device__ float value(std::uint32_t row, int k) const {
    if (!has(row)) return 0.0f;
    if (!p_.has_row_weights_of_k) return p_.row_weights[row];
    return p_.row_weights[static_cast<std::size_t>(row) * static_cast<std::size_t>(p_.plan.shape.top_k) +
                          static_cast<std::size_t>(k)];
  }
  __device__ bool is_direct(int source) const { return Reach(p_.links).is_direct(source); }
  __device__ std::byte* send_buffer_of(TokenAt at, int index) const {
    const Plan& plan = p_.plan;
    const int sent = plan.exact ? at.token * plan.shape.top_k + index : at.token;
    return p_.links.own + plan.map.sent_returned(at.source, static_cast<std::size_t>(sent));
  }
  // The slot, or the send buffer of it.
  __device__ ReturnedWeights& place_of(TokenAt at, int index) const {
    std::byte* place = nullptr;
    if (is_direct(at.source))
      place = Reach(p_.links).heap_of(at.source) + p_.plan.map.returned(at.token, index);
    else
      place = send_buffer_of(at, index);
    return *reinterpret_cast<ReturnedWeights*>(place);
  }
  // Puts what was made in the send buffer. A warp.
  __device__ void put(TokenAt at, int index) const {
    if constexpr (Reach::kHasRemoteRanks) {
      if (is_direct(at.source)) return;
      __syncwarp();
      const HeapMap& map = p_.plan.map;
      typename Reach::Puts(p_.links).put(at.source, map.returned(at.token, index), send_buffer_of(at, index),
                                         map.returned_bytes());
    }
  }

  __device__ void return_each(TokenAt at, int k, unsigned local, std::uint32_t row) const {
    if ((local >> k & 1u) != 0) {
      ReturnedWeights& to = place_of(at, k);
      to.of_k = has(row) ? 1u : 0u;
      to.value[0] = value(row, k);
    }
    for (unsigned rest = local; rest != 0; rest &= rest - 1) put(at, __ffs(static_cast<int>(rest)) - 1);
  }
  // I18: `slot` may be of a caller's handle.
  __device__ void return_together(TokenAt at, int k, int slot, std::uint32_t row) const {
    const int index = min(slot, static_cast<int>(p_.plan.map.results_per_token()) - 1);
    const bool is_k = k < p_.plan.shape.top_k;
    ReturnedWeights& to = place_of(at, index);
    const unsigned of_k = __ballot_sync(kAllLanes, is_k && has(row));
    if (k == 0) to.of_k = of_k;
    if (is_k) to.value[k] = value(row, k);
    put(at, index);
  }

  const ReturnedParams& p_;
  Epoch routing_;
  PeerCounter<Reach> bytes_sent_;
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
__device__ inline void sum_returned(const ReturnedParams& p, const RoutingEntry* own, int token) {
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
  if (is_k) p.sums[first + static_cast<std::size_t>(k)] = sum;
}

}  // namespace ferry::cuda
