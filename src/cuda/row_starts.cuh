// Row starts by one block, as protocol/dispatch.h's find_row_starts: from the R * L counts alone (I4).
#pragma once

#include <cstdint>

#include "cuda/team_group.cuh"
#include "cuda/token_scratch.cuh"
#include "protocol/dispatch.h"

namespace ferry::cuda {

// Exclusive sum over the lanes; `total` gets the sum of all.
__device__ inline std::uint32_t sum_before(std::uint32_t value, std::uint32_t& total) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::uint32_t sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += other;
  }
  total = __shfl_sync(kAllLanes, sum, 31);
  return sum - value;
}

// Counts and headers of all sources into shared memory, all on their way at once.
template <Fabric F>
__device__ void load_counts(const TeamGroup& g, const Plan& plan, const F& fabric, Epoch epoch,
                            const RowStarts& starts) {
  const int experts = plan.local_experts();
  for (int i = g.thread(); i < plan.shape.ranks * experts; i += g.size()) {
    const int source = i / experts;
    const std::uint32_t count =
        reinterpret_cast<const std::uint32_t*>(fabric.local(plan.map.counts(epoch, source)))[i - source * experts];
    starts.of_source[i] = plan.masked[source] != 0 ? 0 : count;
  }
  if (g.thread() >= g.size() - 32) {  // the last warp: the first has most of the counts
    std::uint32_t most = 0;
    for (int source = g.thread() % 32; source < plan.shape.ranks; source += 32) {
      const auto* header = reinterpret_cast<const RoutingHeader*>(fabric.local(plan.map.header(epoch, source)));
      const std::uint32_t tokens = header->num_tokens;  // read beside the mask, not behind it
      starts.tokens[source] = plan.masked[source] != 0 ? 0 : tokens;
      most = max(most, starts.tokens[source]);
    }
    most = __reduce_max_sync(kAllLanes, most);
    if (g.thread() % 32 == 0) starts.tokens[plan.shape.ranks] = most;
  }
  g.sync();
}

template <Fabric F>
__device__ void find_row_starts(const TeamGroup& g, const Plan& plan, const F& fabric, Epoch epoch, int shared_rows,
                                const RowStarts& starts) {
  const int experts = plan.local_experts();
  const int groups = plan.groups();
  load_counts(g, plan, fabric, epoch, starts);
  for (int group = g.thread(); group < groups; group += g.size()) {
    const int local = group - plan.shared_groups;
    std::uint32_t rows = local < 0 ? static_cast<std::uint32_t>(shared_rows) : 0;
    for (int source = 0; local >= 0 && source < plan.shape.ranks; ++source) {
      const std::uint32_t count = starts.of_source[source * experts + local];
      starts.of_source[source * experts + local] = rows;
      rows += count;
    }
    starts.filled[group] = rows;
  }
  g.sync();
  if (g.thread() < 32) {
    std::uint32_t row = 0;
    std::uint32_t tile = 0;
    for (int first = 0; first < groups; first += 32) {
      const int group = first + g.thread();
      const std::uint32_t filled = group < groups ? starts.filled[group] : 0;
      std::uint32_t rows = 0;
      std::uint32_t tiles = 0;
      const std::uint32_t at = row + sum_before(align_row(filled, plan.alignment), rows);
      const std::uint32_t tiles_before = tile + sum_before((filled + 127) / 128, tiles);
      if (group < groups) {
        starts.group[group] = at;
        starts.tiles[group] = tiles_before - at / 128;
      }
      row += rows;
      tile += tiles;
    }
    if (g.thread() == 0) starts.group[groups] = row;
  }
  g.sync();
  for (int i = g.thread(); i < plan.shape.ranks * experts; i += g.size())
    starts.of_source[i] += starts.group[i % experts + plan.shared_groups];
  g.sync();
}

// To device memory, where combine finds them.
__device__ inline void keep_tokens(const TeamGroup& g, const Plan& plan, const RowStarts& starts,
                                   const KeptRows& kept) {
  for (int i = g.thread(); i <= plan.shape.ranks; i += g.size()) kept.tokens[i] = starts.tokens[i];
}

}  // namespace ferry::cuda
