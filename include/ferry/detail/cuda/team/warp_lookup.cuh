// WarpLookup: a TokenLookup by a warp. Lane k has entry k, since top_k is at most 32. In a SyncedTeam the first warp
// looks up; in a WarpwiseTeam each warp does so for itself. cpu::SerialLookup gives the same answers.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/arrived_rows.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/protocol/contracts/token_lookup.h"

namespace ferry::cuda {

static_assert(kMaxTopK <= 32, "a warp holds the entries of a token");

__device__ inline int lane_of(const SyncedTeam& g) { return g.thread() % 32; }
__device__ inline unsigned lanes_below(int lane) { return (1u << lane) - 1u; }

// The lanes that name a rank first: one for each distinct rank. `owner` is -1 if a lane names no rank.
__device__ inline unsigned first_namers(int lane, int owner) {
  const unsigned same = __match_any_sync(kAllLanes, owner);
  return __ballot_sync(kAllLanes, owner >= 0 && (same & lanes_below(lane)) == 0);
}

// ... and those that name a rank last.
__device__ inline unsigned last_namers(int lane, int owner) {
  const unsigned same = __match_any_sync(kAllLanes, owner);
  return __ballot_sync(kAllLanes, owner >= 0 && (same >> lane) == 1u);
}

struct WarpLookup {
  static constexpr bool kHasHandle = false;
  // A lane's answer about its entry. It stays in registers.
  struct Found {
    HandleRow row;  // kNoRow: not an expert of this rank
    int slot;       // I9: how many smaller ranks the token names; of a team's first warp
  };

  __device__ const SyncedTeam& sync_unit(const SyncedTeam& g) const { return g; }
  __device__ SyncedTeam sync_unit(const WarpwiseTeam& g) const { return g.warp(); }

  // I3
  __device__ void destinations(const SyncedTeam& g, const Plan& plan, const DispatchArgs& in, int token,
                               NamedRanks& to) const {
    prefetch_row(g, in.tokens + token * in.row_stride, in.row_bytes);  // on its way while the ids are read
    if (g.thread() < 32) {
      const int k = g.thread();
      const bool shared = plan.shared_groups != 0 && token >= in.shared_begin && token < in.shared_end;
      const std::int64_t entry = static_cast<std::int64_t>(token) * plan.shape.top_k + k;
      const int expert = k < plan.shape.top_k ? routed_expert(plan, in.ids.at(entry)) : -1;
      const int named = expert < 0 ? -1 : plan.owner_of(expert);
      const int owner = shared && named == plan.rank ? -1 : named;  // this rank comes first, and once
      const unsigned namers = first_namers(k, owner);
      const int before = shared ? 1 : 0;
      if ((namers >> k & 1u) != 0) to.rank[before + __popc(namers & lanes_below(k))] = owner;
      if (k == 0 && shared) to.rank[0] = plan.rank;
      if (k == 0) to.count = before + __popc(namers);
    }
    g.sync();
  }

  // I4
  __device__ Found local_rows(const WarpwiseTeam& g, const Plan& plan, const RowStarts& starts, TokenAt at,
                              const RoutingEntry* entries, LocalRows& found) const {
    const int k = g.lane();
    const RoutingEntry entry = k < plan.shape.top_k ? entries[k] : RoutingEntry{0, 0.0f};
    const ExpertRange mine = plan.experts_of(plan.rank);
    const int expert = plan.code.expert(entry.code);
    const bool is_local = mine.contains(expert);
    const unsigned local_lanes = __ballot_sync(kAllLanes, is_local);
    Found here{{kNoRow, entry.weight}, 0};
    if (is_local) {
      const int to = __popc(local_lanes & lanes_below(k));
      const int local = expert - mine.first;
      here.row.row = row_of(plan, starts, at.source, local, plan.code.position_in_expert(entry.code));
      found.k[to] = k;
      found.local[to] = local;
      found.row[to] = here.row.row;
    }
    if (k == 0) found.count = __popc(local_lanes);
    if (g.is_first_warp()) {
      const unsigned namers = first_namers(k, expert < 0 ? -1 : plan.owner_of(expert));
      const bool smaller = (namers >> k & 1u) != 0 && expert < mine.first;
      here.slot = __popc(__ballot_sync(kAllLanes, smaller));
    }
    g.sync();
    return here;
  }

  // I9
  __device__ void results(const WarpwiseTeam& g, const Plan& plan, const RoutingEntry* entries, bool by_last_k,
                          TokenResults& results, NamedRanks&) const {
    const int lane = g.lane();
    const int expert = lane < plan.shape.top_k ? plan.code.expert(entries[lane].code) : -1;
    const int owner = expert < 0 || expert >= plan.shape.experts ? -1 : plan.owner_of(expert);  // I18: of a handle, too
    const unsigned namers = plan.exact  ? __ballot_sync(kAllLanes, owner >= 0)
                            : by_last_k ? last_namers(lane, owner)
                                        : first_namers(lane, owner);
    int slot = lane;
    if (!plan.exact) {  // how many smaller ranks the token names
      slot = 0;
      for (unsigned rest = namers; rest != 0; rest &= rest - 1)
        slot += __shfl_sync(kAllLanes, owner, __ffs(static_cast<int>(rest)) - 1) < owner ? 1 : 0;
    }
    const int at = plan.exact || by_last_k ? __popc(namers & lanes_below(lane)) : slot;
    if ((namers >> lane & 1u) != 0) {
      results.index[at] = slot;
      results.k[at] = lane;
      results.rank[at] = owner;
    }
    if (lane == 0) results.count = __popc(namers);
    g.sync();
  }
};
static_assert(TokenLookup<WarpLookup, SyncedTeam, WarpwiseTeam>);

// Saves what a dispatch leaves for its combine; the first warp of a team does. Not double-buffered (ArrivedRows).
struct RowLog {
  const ArrivedRows& arrived;

  __device__ void keep(const WarpwiseTeam& g, const Plan& plan, TokenAt at, const WarpLookup::Found& found) const {
    if (!g.is_first_warp()) return;
    const int k = g.lane();
    const std::size_t token = static_cast<std::size_t>(at.source) * static_cast<std::size_t>(plan.shape.max_tokens) +
                              static_cast<std::size_t>(at.token);
    if (k < plan.shape.top_k) arrived.rows[token * plan.shape.top_k + k] = found.row;
    if (k == 0) arrived.slots[token] = static_cast<std::uint8_t>(found.slot);
  }
};
static_assert(ArrivalLog<RowLog, WarpLookup, WarpwiseTeam>);

}  // namespace ferry::cuda
