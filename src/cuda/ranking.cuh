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

// How the entries are dealt out: a turn of a warp is as many whole tokens as fit its lanes, a warp has consecutive
// turns. What an entry needs of its token is then in the warp's own registers, and no turn divides.
struct RankingLanes {
  int top_k;
  int tokens;        // of a turn
  int used;          // lanes that hold an entry
  int token;         // of this lane, within the turn
  int k;             // of this lane
  unsigned earlier;  // the lanes of this lane's token before it

  __device__ RankingLanes(int entries_per_token, int lane)
      : top_k(entries_per_token),
        tokens(32 / entries_per_token),
        used(tokens * entries_per_token),
        token(lane / entries_per_token),
        k(lane % entries_per_token),
        earlier(lanes_below(lane) & ~lanes_below(lane - k)) {}
  __device__ int index(int turn, int lane) const { return turn * used + lane; }
};

// What a lane has of a turn.
struct RankedEntry {
  int expert = -1;
  unsigned same = 0;  // the lanes with the same expert
  bool dropped = false;
};

// I3: the expert of an entry; a bad id (out of range, or twice in a token) counts as -1 and is reported once.
__device__ inline RankedEntry route_entry(const Plan& plan, const RankingLanes& lanes, int lane, int turn, bool exists,
                                          std::int64_t id, int num_experts, const RankingArgs& ranking, bool report) {
  RankedEntry entry;
  const int named = exists && id >= 0 && id < num_experts ? static_cast<int>(id) : -1;
  const unsigned same = __match_any_sync(kAllLanes, named);
  const bool bad = exists && (id < -1 || id >= num_experts || (named >= 0 && (same & lanes.earlier) != 0));
  if (bad && report) report_bad_id(ranking, turn * lanes.tokens + lanes.token, lanes.k, id);
  if (named >= 0 && !bad) entry.expert = routed_expert(plan, named, &entry.dropped);
  entry.same = same & __ballot_sync(kAllLanes, entry.expert >= 0);
  return entry;
}

// Counts `entry` in this warp's counters; returns how many of its expert came before this turn.
__device__ inline std::uint32_t count_entry(const RankedEntry& entry, int lane, std::uint32_t* mine) {
  const std::uint32_t before = entry.expert < 0 ? 0 : mine[entry.expert];
  __syncwarp();
  if (entry.expert >= 0 && (entry.same & lanes_below(lane)) == 0)
    mine[entry.expert] = before + static_cast<std::uint32_t>(__popc(entry.same));
  __syncwarp();
  return before;
}

// Counters become the entries of the warps before; their sum goes to `counts`.
__device__ inline void sum_over_warps(const TeamGroup& g, int experts, int warps, std::uint32_t* counters,
                                      std::uint32_t* counts) {
  g.sync();
  for (int expert = g.thread(); expert < experts; expert += g.size()) {
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

struct Turns {
  int first;
  int end;
};

// The second pass: an entry's rank is what its warp and the ones before counted so far.
__device__ inline void write_table(const Plan& plan, const DispatchArgs& in, const RankingLanes& lanes, Turns run,
                                   int num_experts, RoutingEntry* table, std::uint32_t* mine,
                                   const std::uint16_t* cache, const RankingArgs& ranking) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int entries = in.num_tokens * plan.shape.top_k;
  const auto exists = [&](int turn) {
    return lane < lanes.used && turn < run.end && lanes.index(turn, lane) < entries;
  };
  const auto weight_at = [&](int turn) {
    return exists(turn) ? in.weights.at(turn * lanes.tokens + lanes.token, lanes.k) : 0.0f;
  };
  float next = weight_at(run.first);
  for (int turn = run.first; turn < run.end; ++turn) {
    const float weight = next;
    next = weight_at(turn + 1);
    const int index = lanes.index(turn, lane);
    RankedEntry entry;
    if (turn * lanes.used + lanes.used <= ranking.cached) {
      entry.expert = exists(turn) ? cache[index] - 1 : -1;
      entry.same = __match_any_sync(kAllLanes, entry.expert);
    } else {
      const std::int64_t id = exists(turn) ? in.ids.at(index) : -1;
      entry = route_entry(plan, lanes, lane, turn, exists(turn), id, num_experts, ranking, false);
    }
    const std::uint32_t rank =
        count_entry(entry, lane, mine) + static_cast<std::uint32_t>(__popc(entry.same & lanes_below(lane)));
    if (!exists(turn)) continue;
    table[index] = entry.expert < 0 ? RoutingEntry{0, 0.0f} : RoutingEntry{plan.code.pack(entry.expert, rank), weight};
  }
}

// counters: [warps, experts] in shared memory. counts: [experts] in this rank's memory.
__device__ inline void rank_entries(const TeamGroup& g, const Plan& plan, const DispatchArgs& in, int num_experts,
                                    RoutingEntry* table, std::uint32_t* counts, std::uint32_t* counters,
                                    const RankingArgs& ranking) {
  const int experts = plan.shape.experts;
  const int warp = g.thread() / 32;
  const int lane = lane_of(g);
  const RankingLanes lanes(plan.shape.top_k, lane);
  const int all_turns = (in.num_tokens + lanes.tokens - 1) / lanes.tokens;
  const int warps = min(min(ranking.warps, g.size() / 32), all_turns);
  const int turns = warps == 0 ? 0 : (all_turns + warps - 1) / warps;
  const int first = warp < warps ? warp * turns : 0;
  const int end = warp < warps ? min(first + turns, all_turns) : 0;
  for (int i = g.thread(); i < warps * experts; i += g.size()) counters[i] = 0;
  if (g.thread() == 0) store_release(ranking.state->bad_ids, 0u);
  g.sync();

  const int entries = in.num_tokens * plan.shape.top_k;
  const auto exists = [&](int turn) { return lane < lanes.used && turn < end && lanes.index(turn, lane) < entries; };
  const auto id_at = [&](int turn) { return exists(turn) ? in.ids.at(lanes.index(turn, lane)) : -1; };
  auto* cache = reinterpret_cast<std::uint16_t*>(counters + ranking.warps * experts);  // expert + 1
  std::uint32_t* mine = counters + warp * experts;
  std::uint64_t num_dropped = 0;
  std::int64_t next = id_at(first);
  for (int turn = first; turn < end; ++turn) {
    const std::int64_t id = next;
    next = id_at(turn + 1);  // on its way while this turn is counted
    const RankedEntry entry = route_entry(plan, lanes, lane, turn, exists(turn), id, num_experts, ranking, true);
    num_dropped += entry.dropped ? 1 : 0;
    count_entry(entry, lane, mine);
    const int index = lanes.index(turn, lane);
    if (lane < lanes.used && index < ranking.cached) cache[index] = static_cast<std::uint16_t>(entry.expert + 1);
  }
  if (num_dropped != 0) fetch_add_relaxed(ranking.state->dropped, num_dropped);
  sum_over_warps(g, experts, warps, counters, counts);
  write_table(plan, in, lanes, {first, end}, num_experts, table, mine, cache, ranking);
}

}  // namespace ferry::cuda
