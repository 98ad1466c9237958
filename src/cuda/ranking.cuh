// Ranking: how many earlier entries of this source name the same expert, without an atomic reservation. The table is
// cut into parts, a block each; a block counts its part, learns from the others what comes before it, and stores its
// entries to every rank. In a block, each warp has a run of consecutive entries: counts per warp and expert, then their
// sums over the warps before, then ranks. The same table as protocol/dispatch.h's rank_entries. Bad ids (out of range,
// or twice in a token) count as -1.
#pragma once

#include <cstdint>

#include "cuda/kernel_params.h"
#include "cuda/team_group.cuh"
#include "cuda/token_scratch.cuh"
#include "protocol/dispatch.h"

namespace ferry::cuda {

// One of a round; the counter of the next one is cleared meanwhile (round_clock.cuh).
__device__ inline void report_bad_id(const RankingArgs& ranking, Epoch epoch, int token, int k, std::int64_t id) {
  if (fetch_add_relaxed(ranking.state->bad_ids[epoch & 1], 1u) != 0) return;
  ranking.record->bad_token = token;
  ranking.record->bad_k = k;
  ranking.record->bad_id = id;
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

// A block's part of the table, and a warp's run of it, in turns.
struct Turns {
  int first;
  int end;
};

// What a block keeps in shared memory: [warps][experts] counters, [experts] of the parts before, [experts] of all, and
// `cached` experts.
struct RankingMemory {
  std::uint32_t* counters;
  std::uint32_t* before;
  std::uint32_t* total;
  std::uint16_t* cache;  // expert + 1

  __device__ RankingMemory(std::byte* memory, int warps, int experts)
      : counters(reinterpret_cast<std::uint32_t*>(memory)),
        before(counters + warps * experts),
        total(before + experts),
        cache(reinterpret_cast<std::uint16_t*>(total + experts)) {}
};

// What a lane has of a turn.
struct RankedEntry {
  int expert = -1;
  unsigned same = 0;  // the lanes with the same expert
  bool dropped = false;
};

// Counts `entry` in this warp's counters; returns how many of its expert came before this turn.
__device__ inline std::uint32_t count_entry(const RankedEntry& entry, int lane, std::uint32_t* mine) {
  const std::uint32_t before = entry.expert < 0 ? 0 : mine[entry.expert];
  __syncwarp();
  if (entry.expert >= 0 && (entry.same & lanes_below(lane)) == 0)
    mine[entry.expert] = before + static_cast<std::uint32_t>(__popc(entry.same));
  __syncwarp();
  return before;
}

// One block's work on its part.
class Ranker {
 public:
  __device__ Ranker(const TeamGroup& g, const Plan& plan, const DispatchArgs& in, int num_experts,
                    const RankingArgs& ranking, Epoch epoch, int part, int parts, std::byte* memory)
      : g_(g),
        plan_(plan),
        in_(in),
        num_experts_(num_experts),
        ranking_(ranking),
        epoch_(epoch),
        part_(part),
        parts_(parts),
        lane_(lane_of(g)),
        lanes_(plan.shape.top_k, lane_),
        memory_(memory, ranking.warps, plan.shape.experts) {
    const int all_turns = (in.num_tokens + lanes_.tokens - 1) / lanes_.tokens;
    const int part_turns = parts == 1 ? all_turns : ranking.part_tokens / lanes_.tokens;
    first_turn_ = part * part_turns;
    const int turns = min(all_turns - first_turn_, part_turns);
    warps_ = min(min(ranking.warps, g.size() / 32), turns);
    const int each = warps_ == 0 ? 0 : (turns + warps_ - 1) / warps_;
    const int warp = g.thread() / 32;
    mine_ = memory_.counters + warp * plan.shape.experts;
    run_.first = first_turn_ + (warp < warps_ ? warp * each : 0);
    run_.end = warp < warps_ ? min(run_.first + each, first_turn_ + turns) : run_.first;
  }

  // By one thread, once all parts are counted: tells the host.
  __device__ void report_bad_ids() const;
  // Counts this part; the counters then hold what comes before each warp within it.
  __device__ void count();
  // What comes before this part, and in all, from the other blocks. False: a block did not come.
  template <class F>
  __device__ bool learn_from_other_parts(F& fabric);
  // Entries to every rank; from the first part also header and counts. I2: then the part's word.
  template <Fabric F>
  __device__ void publish(F& fabric, std::uint64_t* bytes_sent);

 private:
  __device__ bool exists(int turn) const {
    return lane_ < lanes_.used && turn < run_.end && lanes_.index(turn, lane_) < in_.num_tokens * plan_.shape.top_k;
  }
  __device__ std::int64_t id_at(int turn) const { return exists(turn) ? in_.ids.at(lanes_.index(turn, lane_)) : -1; }
  __device__ float weight_at(int turn) const {
    return exists(turn) ? in_.weights.at(turn * lanes_.tokens + lanes_.token, lanes_.k) : 0.0f;
  }
  __device__ int cache_index(int turn) const { return lanes_.index(turn - first_turn_, lane_); }
  __device__ bool is_cached(int turn) const { return (turn - first_turn_ + 1) * lanes_.used <= ranking_.cached; }
  __device__ RankedEntry route(int turn, std::int64_t id, bool report) const;
  template <class F>
  __device__ void store_entries(F& fabric);
  template <class F>
  __device__ void store_counts(F& fabric);

  const TeamGroup& g_;
  const Plan& plan_;
  const DispatchArgs& in_;
  int num_experts_;
  const RankingArgs& ranking_;
  Epoch epoch_;
  int part_;
  int parts_;
  int lane_;
  RankingLanes lanes_;
  RankingMemory memory_;
  std::uint32_t* mine_;
  int first_turn_;
  int warps_;
  Turns run_;
  float first_weight_ = 0.0f;  // on its way while the part is counted
};

// I3: the expert of an entry; a bad id (out of range, or twice in a token) counts as -1 and is reported once.
__device__ inline RankedEntry Ranker::route(int turn, std::int64_t id, bool report) const {
  RankedEntry entry;
  const bool here = exists(turn);
  const int named = here && id >= 0 && id < num_experts_ ? static_cast<int>(id) : -1;
  const unsigned same = __match_any_sync(kAllLanes, named);
  const bool bad = here && (id < -1 || id >= num_experts_ || (named >= 0 && (same & lanes_.earlier) != 0));
  if (bad && report) report_bad_id(ranking_, epoch_, turn * lanes_.tokens + lanes_.token, lanes_.k, id);
  if (named >= 0 && !bad) entry.expert = routed_expert(plan_, named, &entry.dropped);
  entry.same = same & __ballot_sync(kAllLanes, entry.expert >= 0);
  return entry;
}

__device__ inline void Ranker::count() {
  std::int64_t next = id_at(run_.first);
  first_weight_ = weight_at(run_.first);
  const int experts = plan_.shape.experts;
  for (int i = g_.thread(); i < warps_ * experts; i += g_.size()) memory_.counters[i] = 0;
  g_.sync();
  std::uint64_t num_dropped = 0;
  for (int turn = run_.first; turn < run_.end; ++turn) {
    const std::int64_t id = next;
    next = id_at(turn + 1);  // on its way while this turn is counted
    const RankedEntry entry = route(turn, id, true);
    num_dropped += entry.dropped ? 1 : 0;
    count_entry(entry, lane_, mine_);
    if (lane_ < lanes_.used && is_cached(turn))
      memory_.cache[cache_index(turn)] = static_cast<std::uint16_t>(entry.expert + 1);
  }
  if (num_dropped != 0) fetch_add_relaxed(ranking_.state->dropped, num_dropped);
  g_.sync();
  for (int expert = g_.thread(); expert < experts; expert += g_.size()) {
    std::uint32_t sum = 0;
    for (int w = 0; w < warps_; ++w) {
      const std::uint32_t count = memory_.counters[w * experts + expert];
      memory_.counters[w * experts + expert] = sum;
      sum += count;
    }
    memory_.before[expert] = 0;
    memory_.total[expert] = sum;
    if (parts_ > 1) ranking_.part_counts[part_ * experts + expert] = sum;
  }
  g_.sync();
}

template <class F>
__device__ bool Ranker::learn_from_other_parts(F& fabric) {
  if (parts_ == 1) return true;
  bool ok = true;
  if (g_.thread() == 0) store_release(ranking_.part_done[part_], epoch_);
  if (g_.thread() < parts_) ok = fabric.wait_for_block(ranking_.part_done[g_.thread()], epoch_, Phase::routing);
  if (!g_.all(ok)) return false;
  const int experts = plan_.shape.experts;
  for (int expert = g_.thread(); expert < experts; expert += g_.size()) {
    std::uint32_t before = 0;
    std::uint32_t total = 0;
    for (int part = 0; part < parts_; ++part) {
      const std::uint32_t count = ranking_.part_counts[part * experts + expert];
      before += part < part_ ? count : 0;
      total += count;
    }
    memory_.before[expert] = before;
    memory_.total[expert] = total;
  }
  g_.sync();
  return true;
}

__device__ inline void Ranker::report_bad_ids() const {
  const std::uint32_t bad = load_relaxed(ranking_.state->bad_ids[epoch_ & 1]);
  if (bad == 0) return;
  ranking_.record->num_bad = bad;
  store_release(ranking_.record->has_bad_id, 1u);
}

template <class F>
__device__ void Ranker::store_entries(F& fabric) {
  const std::size_t table = plan_.map.table(epoch_, plan_.rank);
  float next = first_weight_;
  for (int turn = run_.first; turn < run_.end; ++turn) {
    const float weight = next;
    next = weight_at(turn + 1);
    RankedEntry entry;
    if (is_cached(turn)) {
      entry.expert = exists(turn) ? memory_.cache[cache_index(turn)] - 1 : -1;
      entry.same = __match_any_sync(kAllLanes, entry.expert);
    } else {
      entry = route(turn, id_at(turn), false);
    }
    const std::uint32_t rank =
        count_entry(entry, lane_, mine_) + static_cast<std::uint32_t>(__popc(entry.same & lanes_below(lane_)));
    if (!exists(turn)) continue;
    RoutingEntry routed{0, 0.0f};
    if (entry.expert >= 0) routed = {plan_.code.pack(entry.expert, memory_.before[entry.expert] + rank), weight};
    if constexpr (requires { fabric.hooked_weight(0, 0); })
      if (entry.expert >= 0 && !plan_.exact)
        routed.weight = fabric.hooked_weight(turn * lanes_.tokens + lanes_.token, lanes_.k);
    const std::size_t at = table + static_cast<std::size_t>(lanes_.index(turn, lane_)) * sizeof(RoutingEntry);
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (plan_.masked[peer] == 0) fabric.store(peer, at, routed);
  }
}

template <class F>
__device__ void Ranker::store_counts(F& fabric) {
  const std::size_t counts = plan_.map.counts(epoch_, plan_.rank);
  for (int expert = g_.thread(); expert < plan_.shape.experts; expert += g_.size()) {
    const int owner = owner_of(plan_.shape, expert);
    const auto local = static_cast<std::size_t>(expert - plan_.experts_of(owner).first);
    if (plan_.masked[owner] == 0) fabric.store(owner, counts + local * sizeof(std::uint32_t), memory_.total[expert]);
  }
  for (int peer = g_.thread(); peer < plan_.shape.ranks; peer += g_.size())
    if (plan_.masked[peer] == 0)
      fabric.store(peer, plan_.map.header(epoch_, plan_.rank), static_cast<std::uint32_t>(in_.num_tokens));
}

template <Fabric F>
__device__ void Ranker::publish(F& fabric, std::uint64_t* bytes_sent) {
  store_entries(fabric);
  if (part_ == 0) store_counts(fabric);
  // A block that ranks the whole table says so for every part that others may wait for.
  const int words = parts_ > 1 ? 1 : max(1, (in_.num_tokens + ranking_.part_tokens - 1) / ranking_.part_tokens);
  for (int i = 0; i < words; ++i)
    signal_each_after_puts(fabric, g_, plan_.shape.ranks, plan_.map.routed(plan_.rank, part_ + i), epoch_,
                           plan_.masked);
  if (part_ != 0) return;
  if (g_.thread() == 0) report_bad_ids();
  for (int peer = g_.thread(); peer < plan_.shape.ranks; peer += g_.size())
    if (peer != plan_.rank && plan_.masked[peer] == 0)
      bytes_sent[peer] += static_cast<std::size_t>(in_.num_tokens) * plan_.shape.top_k * sizeof(RoutingEntry) +
                          sizeof(RoutingHeader) +
                          static_cast<std::size_t>(plan_.experts_of(peer).count) * sizeof(std::uint32_t);
}

}  // namespace ferry::cuda
