// Row starts on the CPU, by one thread. GPUs find the same by a block: ferry/detail/cuda/steps/row_starts.cuh.
#pragma once

#include <cstdint>

#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

// What the caller chose of a dispatch's rows.
struct RowsWanted {
  int shared_rows = 0;              // of the fused shared expert
  std::uint32_t expert_stride = 0;  // padded: rows from one group to the next; 0: groups follow each other, aligned
};

// I4: every row start follows from the R * L counts: group by group, and in a group source by source. Relies on I2.
template <Fabric F>
void find_row_starts(const Plan& plan, const F& fabric, Epoch routing, const RowsWanted& wanted,
                     RowStartsToFill starts) {
  const int experts = plan.local_experts();
  std::uint32_t first = 0;  // row of the group
  std::uint32_t tiles = 0;
  for (int group = 0; group < plan.groups(); ++group) {
    const int local = group - plan.shared_groups;
    std::uint32_t rows = local < 0 ? static_cast<std::uint32_t>(wanted.shared_rows) : 0;
    for (int source = 0; local >= 0 && source < plan.shape.ranks; ++source) {
      starts.of_source[source * experts + local] = rows;
      if (plan.is_masked(source)) continue;
      rows += reinterpret_cast<const std::uint32_t*>(fabric.local(plan.map.counts(routing, source)))[local];
    }
    starts.group[group] = first;
    starts.filled[group] = rows;
    starts.tiles[group] = scales_offset_of(tiles, first);
    const std::uint32_t stride = wanted.expert_stride;
    tiles += static_cast<std::uint32_t>(scale_blocks(stride != 0 ? stride : rows));
    first += stride != 0 ? stride : align_row(rows, plan.alignment);
  }
  starts.group[plan.groups()] = first;
  std::uint32_t most = 0;
  for (int source = 0; source < plan.shape.ranks; ++source) {
    starts.tokens[source] = static_cast<std::uint32_t>(tokens_of(plan, fabric, routing, source));
    most = starts.tokens[source] > most ? starts.tokens[source] : most;
  }
  starts.tokens[plan.shape.ranks] = most;
}

}  // namespace ferry::cpu
