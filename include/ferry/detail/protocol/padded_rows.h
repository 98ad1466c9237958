// Rows in the order `padded`: group g begins at row g * stride, whatever came. The rest is as by_expert: I4 holds with
// these starts, and lay_out_rows lays the rows out.
//
// Rows of a group past its count stay as they were, and so do their scales: `counts` says how many there are. To mark
// them would take longer than to lay out what came.
#pragma once

#include <cstdint>

#include "ferry/detail/protocol/step.h"

namespace ferry {

// The operations on rows, where transposed scales lie group by group (padded_scale_row).
template <class O>
struct PaddedOps : O {
  template <ThreadGroup G>
  FERRY_HD void store_scales(const G& g, const ScaleTensor& tensor, const std::byte* scales, const RowStarts& starts,
                             int shared_groups, const LocalRows& to) const {
    if (tensor.layout != ScaleLayout::transposed) return O::store_scales(g, tensor, scales, starts, shared_groups, to);
    for (int i = 0; i < to.count; ++i) {
      const int group = to.local[i] + shared_groups;
      const ScaleRow at{to.row[i], starts.group[group], starts.tiles[group]};
      ferry::store_scales(g, tensor, scales, padded_scale_row(tensor, at));
    }
  }
  template <ThreadGroup G>
  FERRY_HD void zero_scales(const G& g, const ScaleTensor& tensor, const ScaleRow& at) const {
    O::zero_scales(g, tensor, padded_scale_row(tensor, at));
  }
};
static_assert(RowOps<PaddedOps<PortableOps>, SerialGroup>);

// A step that lays out padded rows.
template <ReceiveStep S>
FERRY_HD auto padded(const S& step) {
  return with_ops(step, PaddedOps<typename S::Ops>{step.ops});
}

// In place of write_row_metadata: what follows only from the row starts. Of tiled scales the rest of a group's last
// tile of 128 rows is 0. `share`: of the groups.
template <ThreadGroup G, RowOps<G> O>
FERRY_HD void write_padded_metadata(const Plan& plan, const G& g, const O& ops, FixedShare share,
                                    const RowStarts& starts, const RowsOut& out) {
  const int groups = plan.groups();
  for (int group = g.thread(); share.index == 0 && group <= groups; group += g.size()) {
    if (out.row_offsets != nullptr) out.row_offsets[group] = starts.group[group];
    if (group == groups) break;
    if (out.expert_ids != nullptr) out.expert_ids[group] = group;
    out.counts[group] = static_cast<std::int32_t>(starts.filled[group]);
    if (out.scales_offsets != nullptr) out.scales_offsets[group] = starts.tiles[group];
  }
  if (out.scales.layout != ScaleLayout::tiled || !out.stores_scales) return;
  for (int group = share.index; group < groups; group += share.count) {
    const std::uint32_t first = starts.group[group];
    ops.zero_scale_tail(g, out.scales, first, first + starts.filled[group], starts.tiles[group]);
  }
}

}  // namespace ferry
