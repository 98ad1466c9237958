// Dispatch: what follows from the row starts alone. All backends run this text, each after it has found the starts in
// its own way (row_starts.h, row_starts.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/protocol/step.h"

namespace ferry {

// row_offsets, expert_ids, scales_offsets, and what marks the padding rows of every group: src_info (-1, -1), scale 0.
// Of them what the caller gave. `share`: of the groups. It comes before the first row of a group is laid out.
template <ThreadGroup G, RowOps<G> O>
FERRY_HD void write_row_metadata(const Plan& plan, const G& g, const O& ops, FixedShare share, const RowStarts& starts,
                                 const RowsOut& out) {
  const int groups = plan.groups();
  for (int group = g.thread(); share.index == 0 && group <= groups; group += g.size()) {
    if (out.row_offsets != nullptr) out.row_offsets[group] = starts.group[group];
    if (group == groups) break;
    if (out.expert_ids != nullptr) out.expert_ids[group] = group;
    if (out.scales_offsets != nullptr) out.scales_offsets[group] = starts.tiles[group];
  }
  for (int group = share.index; group < groups; group += share.count) {
    const std::uint32_t first = starts.group[group];
    const std::uint32_t end = starts.group[group + 1];  // once: the compiler cannot know that the stores leave it be
    const std::uint32_t filled_end = first + starts.filled[group];
    const std::uint32_t marked_end = out.src_info != nullptr ? end : filled_end;
    for (std::uint32_t row = filled_end + static_cast<std::uint32_t>(g.thread()); row < marked_end;
         row += static_cast<std::uint32_t>(g.size())) {
      out.src_info[2 * static_cast<std::size_t>(row)] = -1;
      out.src_info[2 * static_cast<std::size_t>(row) + 1] = -1;
    }
    if (!out.stores_scales) continue;
    if (out.scales.layout == ScaleLayout::tiled) {
      ops.zero_scale_tail(g, out.scales, first, filled_end, starts.tiles[group]);
      continue;
    }
    for (std::uint32_t row = filled_end; row < end; ++row)
      ops.zero_scales(g, out.scales, ScaleRow{row, first, starts.tiles[group]});
  }
}

}  // namespace ferry
