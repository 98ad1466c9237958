// Ranking by one block: how many earlier entries of this source name the same expert, without an atomic reservation.
// Each warp has a run of consecutive entries; counts per warp and expert, then their sums over the warps before, then
// ranks. The same table as protocol/dispatch.h's rank_entries. Bad ids (out of range, or twice in a token) count as -1.
#pragma once

#include <cstdint>

#include "cuda/kernel_params.h"
#include "cuda/team_group.cuh"
#include "cuda/token_scratch.cuh"
#include "protocol/dispatch.h"

namespace ferry::cuda {

__device__ inline void report_bad_id(const RankingArgs& ranking, int token, int k, std::int64_t id) {
  if (fetch_add_relaxed(ranking.state->bad_ids, 1u) != 0) return;
  ranking.record->bad_token = token;
  ranking.record->bad_k = k;
  ranking.record->bad_id = id;
  store_release(ranking.record->has_bad_id, 1u);
}

// The expert of an entry, or -1. I3: the first pass reports what is wrong with the id.
__device__ inline int checked_expert(const Plan& plan, const DispatchArgs& in, int index, int num_experts,
                                     const RankingArgs& ranking, bool report, bool* dropped) {
  const int token = index / plan.shape.top_k;
  const int k = index - token * plan.shape.top_k;
  const std::int64_t id = in.ids.at(index);
  bool bad = id < -1 || id >= num_experts;
#pragma unroll 4
  for (int earlier = 1; earlier <= k; ++earlier) bad = bad || (id >= 0 && in.ids.at(index - earlier) == id);
  if (bad && report) report_bad_id(ranking, token, k, id);
  return bad ? -1 : routed_expert(plan, id, dropped);
}

// counters: [warps, experts] in shared memory. counts: [experts] in this rank's memory.
__device__ inline void rank_entries(const TeamGroup& g, const Plan& plan, const DispatchArgs& in, int num_experts,
                                    RoutingEntry* table, std::uint32_t* counts, std::uint32_t* counters,
                                    const RankingArgs& ranking) {
  const int experts = plan.shape.experts;
  const int warp = g.thread() / 32;
  const int lane = lane_of(g);
  const int entries = in.num_tokens * plan.shape.top_k;
  const int most_warps = ranking.warps < g.size() / 32 ? ranking.warps : g.size() / 32;
  const int warps = entries < 32 * most_warps ? (entries + 31) / 32 : most_warps;
  const int turns = warps == 0 ? 0 : (entries + 32 * warps - 1) / (32 * warps);
  for (int i = g.thread(); i < warps * experts; i += g.size()) counters[i] = 0;
  if (g.thread() == 0) store_release(ranking.state->bad_ids, 0u);
  g.sync();

  auto* cache = reinterpret_cast<std::uint16_t*>(counters + ranking.warps * experts);  // expert + 1
  std::uint64_t num_dropped = 0;
  for (int pass = 0; pass < 2; ++pass) {
    std::uint32_t* mine = counters + warp * experts;
    for (int turn = 0; turn < turns && warp < warps; ++turn) {
      const int index = (warp * turns + turn) * 32 + lane;
      bool dropped = false;
      int expert = -1;
      if (pass == 1 && index < ranking.cached)
        expert = index < entries ? cache[index] - 1 : -1;
      else if (index < entries)
        expert = checked_expert(plan, in, index, num_experts, ranking, pass == 0, &dropped);
      if (pass == 0 && index < ranking.cached) cache[index] = static_cast<std::uint16_t>(expert + 1);
      num_dropped += pass == 0 && dropped ? 1 : 0;
      const unsigned same = __match_any_sync(kAllLanes, expert);
      const std::uint32_t before = expert < 0 ? 0 : mine[expert];
      __syncwarp();
      if (expert >= 0 && (same & lanes_below(lane)) == 0)
        mine[expert] = before + static_cast<std::uint32_t>(__popc(same));
      __syncwarp();
      if (pass == 0 || index >= entries) continue;
      const std::uint32_t rank = before + static_cast<std::uint32_t>(__popc(same & lanes_below(lane)));
      table[index].code = expert < 0 ? 0 : plan.code.pack(expert, rank);
      table[index].weight = expert < 0 ? 0.0f : in.weights.at(index / plan.shape.top_k, index % plan.shape.top_k);
    }
    g.sync();
    for (int expert = g.thread(); pass == 0 && expert < experts; expert += g.size()) {
      std::uint32_t sum = 0;
      for (int w = 0; w < warps; ++w) {
        const std::uint32_t count = counters[w * experts + expert];
        counters[w * experts + expert] = sum;
        sum += count;
      }
      counts[expert] = sum;
    }
    g.sync();
  }
  if (num_dropped != 0) fetch_add_relaxed(ranking.state->dropped, num_dropped);
}

}  // namespace ferry::cuda
