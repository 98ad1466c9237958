// Rows that are `in_place`: no row is copied. `gather` names the slot of each row of by_expert, so that a matmul reads
// the messages where they arrived. I1 keeps them there until this rank begins its next dispatch.
#pragma once

#include <cstdint>

#include "ferry/detail/protocol/dispatch_receive.h"

namespace ferry {

// Beside write_row_metadata: the padding rows of every group have no slot. `share`: of the groups.
template <ThreadGroup G>
FERRY_HD void mark_padding_of_gather(const Plan& plan, const G& g, FixedShare share, const RowStarts& starts,
                                     const RowsOut& out) {
  for (int group = share.index; group < plan.groups(); group += share.count)
    for (std::uint32_t row = starts.group[group] + starts.filled[group] + static_cast<std::uint32_t>(g.thread());
         row < starts.group[group + 1]; row += static_cast<std::uint32_t>(g.size()))
      out.gather[row] = -1;
}

// The rows of a token that has come.
template <ReceiveStep S>
FERRY_HD void name_slot(const S& step, TokenAt at, const RowsOut& out, const LocalRows& to) {
  const std::uint32_t slot = step.plan.map.message_slot(step.epoch, at.source, at.token);
  for (int i = step.group.thread(); i < to.count; i += step.group.size()) {
    out.gather[to.row[i]] = static_cast<std::int32_t>(slot);
    if (out.src_info == nullptr) continue;
    out.src_info[2 * static_cast<std::size_t>(to.row[i])] = at.token;
    out.src_info[2 * static_cast<std::size_t>(to.row[i]) + 1] = to.k[i];
  }
}

// As lay_out_rows.
template <bool kMayOverflow, ReceiveStep S, ArrivalLog<typename S::Lookup, typename S::Group> Log>
FERRY_HD bool lay_out_in_place(const S& step, FixedShare share, const RowPlaces& places, const RowsOut& out,
                               const Log& log, TokenScratch& scratch) {
  return for_each_arrival(step, share, places.starts, log, scratch, [&](TokenAt at, LocalRows& to) {
    if constexpr (kMayOverflow) keep_fitting(step, places, to);
    if (!kMayOverflow || to.count != 0) name_slot(step, at, out, to);
  });
}

}  // namespace ferry
