// Row starts by one block, as cpu::find_row_starts: only from the R * L counts (I4), which need not wait for the
// tables. A thread has a group: it takes the group's counts from all sources, and the warps then tell each other how
// many rows theirs have.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/layout/scale_layout.h"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

// Exclusive prefix sum over the lanes.
__device__ inline std::uint32_t sum_before(std::uint32_t value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::uint32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += other;
  }
  return sum - value;
}

// Shared memory: aligned rows, and scale tiles, of each warp's groups.
struct WarpTotals {
  static constexpr int kWarps = kThreads / 32;
  std::uint32_t rows[kWarps];
  std::uint32_t tiles[kWarps];
};

// The sum over the first `warps`. Every warp computes it for itself.
__device__ inline std::uint32_t sum_of_warps(const std::uint32_t* totals, int warps) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __reduce_add_sync(kAllLanes, lane < warps ? totals[lane] : 0);
}

struct GroupsWanted {
  int shared_rows;       // of the fused shared expert's group
  std::uint32_t stride;  // of padded groups
  int alignment;         // of others
};

// A replay aligns rows as the dispatch of its handle did. `replayed` is null without a handle, and where its rows have
// no alignment. I18: the header may hold any bytes, and align_row takes a power of two.
__device__ inline int alignment_of(const Plan& plan, const HandleHeader* replayed) {
  if (replayed == nullptr) return plan.alignment;
  const std::int32_t kept = replayed->alignment;
  return kept >= 1 && (kept & (kept - 1)) == 0 ? kept : plan.alignment;
}

// `kPadded`: every group begins one stride after the group before it.
template <DeviceFabric F, bool kPadded = false>
class RowStartFinder {
 public:
  // `all`: the threads of the block.
  __device__ RowStartFinder(const SyncedTeam& all, const Plan& plan, F& fabric, Epoch epoch, const GroupsWanted& wanted,
                            RowStartsToFill starts, WarpTotals& totals)
      : stride_(wanted.stride),
        alignment_(wanted.alignment),
        all_(all),
        plan_(plan),
        fabric_(fabric),
        epoch_(epoch),
        shared_rows_(wanted.shared_rows),
        starts_(starts),
        totals_(totals) {}

  // I19. Waits for the counts and numbers of tokens of all sources, and fills `starts`, of_source counted from the
  // start of the row's group. The tables may still be on their way. False: a rank did not come. Ends with a barrier.
  __device__ bool find() {
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp == WarpTotals::kWarps - 1) take_numbers_of_tokens();
    std::uint32_t row = 0;  // rows before the groups of this turn
    std::uint32_t tile = 0;
#pragma unroll 1
    for (int first = 0; first <= plan_.groups(); first += kThreads) {
      const int group = first + static_cast<int>(threadIdx.x);
      const std::uint32_t filled = take_counts(group - plan_.shared_groups);
      const std::uint32_t rows = kPadded ? stride_ : align_row(filled, alignment_);
      const auto tiles = static_cast<std::uint32_t>(scale_blocks(kPadded ? stride_ : filled));
      const std::uint32_t rows_before = sum_before(rows);
      const std::uint32_t tiles_before = sum_before(tiles);
      if (threadIdx.x % 32 == 31) {
        totals_.rows[warp] = rows_before + rows;
        totals_.tiles[warp] = tiles_before + tiles;
      }
      ok_ = all_.all(ok_);
      store_group(group, filled, row + sum_of_warps(totals_.rows, warp) + rows_before,
                  tile + sum_of_warps(totals_.tiles, warp) + tiles_before);
      if (first + kThreads <= plan_.groups()) {
        row += sum_of_warps(totals_.rows, WarpTotals::kWarps);
        tile += sum_of_warps(totals_.tiles, WarpTotals::kWarps);
      }
      all_.sync();
    }
    return ok_;
  }

 private:
  static constexpr int kAhead = 4;  // counts of a group that are loaded at once

  __device__ void store_group(int group, std::uint32_t filled, std::uint32_t row, std::uint32_t tile) {
    if (group > plan_.groups()) return;
    starts_.group[group] = row;
    if (group == plan_.groups()) return;
    starts_.filled[group] = filled;
    starts_.tiles[group] = scales_offset_of(tile, row);
  }

  // The value of a source's word. `word` is what the first load found. No value if the rank did not come.
  __device__ std::uint32_t take(int source, std::size_t at, std::uint32_t word, bool notes_time) {
    const RoundTag& tag = fabric_.links().tag;
    if (plan_.is_silent(source)) return 0;
    if (tag.is_of(word, epoch_)) return tag.value(word);
    if (!ok_) return 0;
    const TaggedValue waited = fabric_.waits().wait_for_tag(
        at, epoch_, plan_.map.routed(source), {Operation::dispatch, Phase::routing, source, -1}, notes_time);
    ok_ = waited.is_there;
    return waited.value;
  }
  __device__ std::uint32_t look(std::size_t at) const {
    return load_relaxed(*reinterpret_cast<const SystemWord<std::uint32_t>*>(fabric_.local(at)));
  }

  // One warp waits, a source in each lane. Its waiting time counts for all warps.
  __device__ void take_numbers_of_tokens() {
    const int ranks = plan_.shape.ranks;
    std::uint32_t most = 0;
#pragma unroll 1
    for (int source = static_cast<int>(threadIdx.x % 32); source < ranks; source += 32) {
      const std::size_t at = plan_.map.header(epoch_, source);
      const std::uint32_t tokens = take(source, at, look(at), true);
      starts_.tokens[source] = tokens < excess_mark(plan_.shape) ? tokens : 0;
      most = max(most, tokens);
    }
    most = __reduce_max_sync(kAllLanes, most);
    if (threadIdx.x % 32 == 0) starts_.tokens[ranks] = most;
  }

  // The rows of a group (0 past the last group), and where the rows of each source begin in it. All counts are in
  // flight, so it waits for one missing count after the other. Threads without a group load nothing, since all blocks
  // load the same lines.
  __device__ std::uint32_t take_counts(int local) {
    const int experts = plan_.local_experts();
    const int ranks = plan_.shape.ranks;
    const bool has_counts = local >= 0 && local < experts;
    const auto count_at = [&](int source) {
      return plan_.map.counts(epoch_, source) + static_cast<std::size_t>(local) * sizeof(std::uint32_t);
    };
    std::uint32_t rows = 0;
#pragma unroll 1
    for (int first = 0; first < ranks; first += kAhead) {
      std::uint32_t words[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) words[i] = has_counts && first + i < ranks ? look(count_at(first + i)) : 0;
      const int end = has_counts ? min(first + kAhead, ranks) : first;
      // One text of the wait for all: small rounds are bound by the instruction cache. Words that an index would find
      // could not stay in registers, so they move up.
#pragma unroll 1
      for (int source = first; source < end; ++source) {
        starts_.of_source[source * experts + local] = rows;
        rows += take(source, count_at(source), words[0], false);
#pragma unroll
        for (int i = 0; i + 1 < kAhead; ++i) words[i] = words[i + 1];
      }
    }
    return local < 0 ? static_cast<std::uint32_t>(shared_rows_) : rows;
  }

  std::uint32_t stride_;
  int alignment_;
  const SyncedTeam& all_;
  const Plan& plan_;
  F& fabric_;
  Epoch epoch_;
  int shared_rows_;
  const RowStartsToFill starts_;
  WarpTotals& totals_;
  bool ok_ = true;
};

// Copies row starts to device memory, for combine and the scales kernel.
__device__ inline void save_row_starts(const SyncedTeam& g, const Plan& plan, const RowStarts& starts,
                                       RowStartsToFill to) {
  const int words = row_start_words(plan);
#pragma unroll 1
  for (int i = g.thread(); i < words; i += g.size()) to.of_source[i] = starts.of_source[i];
}

}  // namespace ferry::cuda
