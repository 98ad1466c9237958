// Rows in the order `by_source`: one row for each token that names an expert of this rank, however many it names. All
// rows are one group, from row 0 on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/protocol/dispatch_receive.h"

namespace ferry {

// A row's local expert of entry k, or -1.
FERRY_HD inline void put_row_id(const RowsOut& out, std::size_t index, int id) {
  if (out.has_i64_ids)
    static_cast<std::int64_t*>(out.row_topk_ids)[index] = id;
  else
    static_cast<std::int32_t*>(out.row_topk_ids)[index] = id;
}

// source_offsets, counts, ids -1 past the last row, and of tiled scales the rest of the last tile. It comes before the
// first row. `share`: of the ids; the first one has all else.
template <ThreadGroup G, RowOps<G> O>
FERRY_HD void write_source_metadata(const Plan& plan, const G& g, const O& ops, FixedShare share,
                                    const RowStarts& starts, const SourceRows& rows, const RowsOut& out) {
  const int sources = plan.shape.ranks;
  const auto top_k = static_cast<std::size_t>(plan.shape.top_k);
  const std::size_t end = static_cast<std::size_t>(out.scales.row_capacity) * top_k;
  const auto first = static_cast<std::size_t>(share.index * g.size() + g.thread());
  for (std::size_t index = rows.offsets[sources] * top_k + first; out.row_topk_ids != nullptr && index < end;
       index += static_cast<std::size_t>(share.count * g.size()))
    put_row_id(out, index, -1);
  if (share.index != 0) return;
  for (int source = g.thread(); source <= sources; source += g.size())
    out.source_offsets[source] = rows.offsets[source];
  for (int local = g.thread(); out.counts != nullptr && local < plan.local_experts(); local += g.size())
    out.counts[local] = static_cast<std::int32_t>(starts.filled[local]);
  if (out.scales.layout == ScaleLayout::tiled && out.stores_scales)
    ops.zero_scale_tail(g, out.scales, 0, rows.offsets[sources], 0);
}

// What a row of by_source says of its token: the local expert and the weight of each k, token and source.
template <ThreadGroup G>
FERRY_HD void describe_row(const Plan& plan, const G& g, TokenAt at, std::uint32_t row, const LocalRows& found,
                           const RowsOut& out) {
  const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(plan.shape.top_k);
  for (int k = g.thread(); k < plan.shape.top_k; k += g.size()) {
    int id = -1;
    float weight = 0.0f;
    for (int i = 0; i < found.count; ++i) {
      if (found.k[i] != k) continue;
      id = found.local[i];
      weight = found.weight[i];
    }
    if (out.row_topk_ids != nullptr) put_row_id(out, first + static_cast<std::size_t>(k), id);
    if (out.row_topk_weights != nullptr) out.row_topk_weights[first + static_cast<std::size_t>(k)] = weight;
  }
  for (int i = g.thread(); out.src_info != nullptr && i < 2; i += g.size())
    out.src_info[2 * static_cast<std::size_t>(row) + static_cast<std::size_t>(i)] = i == 0 ? at.token : at.source;
}

// Writes the row of a token that has come. `found`: what a look-up says of it; overwritten. `starts`: the row starts of
// by_expert. Their group 0 begins where all rows of by_source begin.
template <ReceiveStep S>
FERRY_HD void write_row_of_token(const S& step, TokenAt at, std::uint32_t row, const RowStarts& starts,
                                 const RowsOut& out, LocalRows& found) {
  const auto& g = step.group;
  describe_row(step.plan, g, at, row, found, out);
  g.sync();
  if (step.lookup.sync_unit(g).thread() == 0) {
    found.count = 1;
    found.local[0] = 0;
    found.row[0] = row;
  }
  g.sync();
  const std::byte* message = step.fabric.local(step.plan.map.message(step.epoch, at.source, at.token));
  step.ops.copy_to_rows(g, out.payload, out.row_bytes, found.row, found.count, message, out.row_bytes);
  if (out.stores_scales) step.ops.store_scales(g, out.scales, message + out.row_bytes, starts, 0, found);
}

// As lay_out_rows.
template <bool kMayOverflow, ReceiveStep S, ArrivalLog<typename S::Lookup, typename S::Group> Log>
FERRY_HD bool lay_out_by_source(const S& step, FixedShare share, const RowPlaces& places, const RowsOut& out,
                                const Log& log, TokenScratch& scratch) {
  return for_each_arrival(step, share, places.starts, log, scratch, [&](TokenAt at, LocalRows& found) {
    const std::uint32_t row = places.by_source.row_of(at);
    if (!kMayOverflow || places.room.has(row)) write_row_of_token(step, at, row, places.starts, out, found);
  });
}

}  // namespace ferry
