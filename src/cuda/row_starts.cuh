// Row starts by one block, as protocol/dispatch.h's find_row_starts: from the R * L counts alone (I4), which need not
// wait for the tables.
#pragma once

#include <cstdint>

#include "cuda/team_group.cuh"
#include "cuda/token_scratch.cuh"
#include "protocol/dispatch.h"

namespace ferry::cuda {

// Exclusive sum over the lanes.
__device__ inline std::uint32_t sum_before(std::uint32_t value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::uint32_t sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += other;
  }
  return sum - value;
}

// Where a count of a source lies, and where it is kept in shared memory.
struct CountPlace {
  int source = -1;  // none
  std::size_t word = 0;
  std::uint32_t* kept = nullptr;
};

// Warps' turns for the counts of all sources, 32 of one source each.
__device__ inline int count_runs(const Plan& plan) { return (plan.local_experts() + 31) / 32 * plan.shape.ranks; }

// What a lane of turn `run` waits for. Behind the counts come the numbers of the sources' tokens.
__device__ inline CountPlace count_place(const Plan& plan, Epoch epoch, const RowStarts& starts, int run, int lane) {
  const int experts = plan.local_experts();
  const int ranks = plan.shape.ranks;
  const int part = plan.by_ranks.quotient(run);
  const int index = part * 32 + lane;
  if (part * 32 < experts) {
    const int source = run - part * ranks;
    if (index >= experts) return {};
    return {source, plan.map.counts(epoch, source) + static_cast<std::size_t>(index) * sizeof(std::uint32_t),
            starts.of_source + source * experts + index};
  }
  const int source = (run - count_runs(plan)) * 32 + lane;
  if (source >= ranks) return {};
  return {source, plan.map.header(epoch, source), starts.tokens + source};
}

// I19. Waits for the counts and numbers of tokens of all sources and takes them into shared memory. The tables may
// still be on their way. False: a rank did not come.
template <Fabric F>
__device__ bool await_counts(const TeamGroup& g, const Plan& plan, F& fabric, Epoch epoch, const RowStarts& starts) {
  const int runs = count_runs(plan) + (plan.shape.ranks + 31) / 32;
  bool ok = true;
#pragma unroll 1
  for (int run = g.thread() / 32; run < runs; run += g.size() / 32) {
    const CountPlace at = count_place(plan, epoch, starts, run, g.thread() % 32);
    TaggedValue count{true, 0};
    if (at.source >= 0 && !plan.is_masked(at.source))
      count = fabric.wait_for_tag(at.word, epoch, plan.map.routed(at.source),
                                  {Operation::dispatch, Phase::routing, at.source, -1});
    ok = ok && count.is_there;
    if (at.source >= 0) *at.kept = count.value;
  }
  return g.all(ok);
}

// From `filled`, warp by warp: what comes before a warp's groups each warp adds up for itself, so none waits for
// another. Ends with a barrier.
__device__ inline void find_group_starts(const TeamGroup& g, const Plan& plan, const RowStarts& starts) {
  const int groups = plan.groups();
  const int lane = g.thread() % 32;
#pragma unroll 1
  for (int first = g.thread() - lane; first <= groups; first += g.size()) {
    std::uint32_t row = 0;
    std::uint32_t tile = 0;
#pragma unroll 1
    for (int before = lane; before < first; before += 32) {
      row += align_row(starts.filled[before], plan.alignment);
      tile += (starts.filled[before] + 127) / 128;
    }
    row = __reduce_add_sync(kAllLanes, row);
    tile = __reduce_add_sync(kAllLanes, tile);
    const int group = first + lane;
    const std::uint32_t filled = group < groups ? starts.filled[group] : 0;
    row += sum_before(align_row(filled, plan.alignment));
    tile += sum_before((filled + 127) / 128);
    if (group <= groups) starts.group[group] = row;
    if (group < groups) starts.tiles[group] = tile - row / 128;
  }
  g.sync();
}

// From what await_counts found. of_source is counted from the start of the row's group.
__device__ inline void find_row_starts(const TeamGroup& g, const Plan& plan, int shared_rows, const RowStarts& starts) {
  const int experts = plan.local_experts();
  const int groups = plan.groups();
  if (g.thread() == g.size() - 1) {
    std::uint32_t most = 0;
#pragma unroll 1
    for (int source = 0; source < plan.shape.ranks; ++source) most = max(most, starts.tokens[source]);
    starts.tokens[plan.shape.ranks] = most;
  }
#pragma unroll 1
  for (int group = g.thread(); group < groups; group += g.size()) {
    const int local = group - plan.shared_groups;
    std::uint32_t rows = local < 0 ? static_cast<std::uint32_t>(shared_rows) : 0;
#pragma unroll 1
    for (int source = 0; local >= 0 && source < plan.shape.ranks; ++source) {
      const std::uint32_t count = starts.of_source[source * experts + local];
      starts.of_source[source * experts + local] = rows;
      rows += count;
    }
    starts.filled[group] = rows;
  }
  g.sync();
  find_group_starts(g, plan, starts);
}

// To device memory, where combine and the scales kernel find them.
__device__ inline void keep_row_starts(const TeamGroup& g, const Plan& plan, const RowStarts& starts,
                                       const KeptRows& kept) {
  const int words = row_start_words(plan);
  for (int i = g.thread(); i < words; i += g.size()) kept.starts.of_source[i] = starts.of_source[i];
}

}  // namespace ferry::cuda
