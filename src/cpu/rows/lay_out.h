// From messages to rows on a CPU rank, in the order that the dispatch asked for. The loops over messages are of the
// protocol; they end in one row at a time.
#pragma once

#include <cstring>

#include "cpu/rows/kept_call.h"
#include "cpu/rows/ordered_places.h"
#include "cpu/rows/row_scales.h"
#include "ferry/detail/protocol/dispatch_receive.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/rows_in_place.h"

namespace ferry::cpu {

// The operations on rows in this order.
template <ReceiveStep S>
auto with_row_ops(const S& step, const RowsOut& out) {
  return with_ops(step, RowScaleOps<typename S::Ops>{{step.ops}, out.row_scales});
}

// As lay_out_shared_rows and lay_out_rows; the room holds all shared rows.
template <ReceiveStep S>
bool lay_out_groups(const S& step, const SharedTokens& shared, FixedShare share, const RowPlaces& places,
                    const RowsOut& out, TokenScratch& scratch) {
  return lay_out_shared_rows(step, shared, share, places.starts, out, scratch) &&
         lay_out_rows<true>(step, share, places, out, NoLog{}, scratch);
}

// Lays out one worker's part of the rows. It awaits messages even if their rows have no room (I1). False: a rank did
// not come.
template <ReceiveStep S>
bool lay_out_share(const S& step, const SharedTokens& shared, FixedShare share, const OrderedPlaces& places,
                   const RowsOut& out, TokenScratch& scratch) {
  switch (places.order) {
    case RowOrder::by_expert:
      break;
    case RowOrder::by_source:
      return lay_out_by_source<true>(with_row_ops(step, out), share, places, out, NoLog{}, scratch);
    case RowOrder::padded:
      return lay_out_groups(with_row_ops(padded(step), out), shared, share, places, out, scratch);
    case RowOrder::in_place:
      return lay_out_in_place<true>(step, share, places, out, NoLog{}, scratch);
  }
  return lay_out_groups(with_row_ops(step, out), shared, share, places, out, scratch);
}

// Weight and scale 0 where they are asked for, and, where the caller wants that, a payload of zeros.
inline void clear_row(std::size_t row, const RowsOut& out) {
  if (out.row_weights != nullptr) out.row_weights[row] = 0.0f;
  if (out.global_scales.are_given())
    out.global_scales.put(static_cast<std::int64_t>(row), 0.0f);  // also where `scales` is left out
  if (out.row_scales.data != nullptr)
    put_row_scales(SerialGroup{}, out.row_scales, static_cast<std::int64_t>(row), nullptr);
  if (out.zeroes_padding) std::memset(out.payload + row * out.row_bytes, 0, out.row_bytes);
}

// Makes a row padding, because its message will not come.
template <ReceiveStep S>
void pad_row(const S& step, std::uint32_t row, int group, const RowStarts& starts, const RowsOut& out) {
  if (out.src_info != nullptr)
    out.src_info[2 * static_cast<std::size_t>(row)] = out.src_info[2 * static_cast<std::size_t>(row) + 1] = -1;
  if (out.gather != nullptr) out.gather[row] = -1;
  if (out.row_sources != nullptr) out.row_sources[row] = -1;
  clear_row(row, out);
  if (out.scales.layout != ScaleLayout::none)
    step.ops.zero_scales(step.group, out.scales, ScaleRow{row, starts.group[group], starts.tiles[group]});
}

// Rows of sources that the mask took out since the handle's dispatch become padding: no message comes for them.
template <ReceiveStep S>
void pad_rows_of_masked(const S& step, const KeptCall& call, const OrderedPlaces& places, const RowsOut& out,
                        LocalRows& found) {
  const RowStarts& starts = call.starts();
  for (int source = 0; source < step.plan.shape.ranks; ++source) {
    if (!call.is_newly_masked(source)) continue;
    for (int token = 0; token < static_cast<int>(starts.tokens[source]); ++token) {
      const TokenAt at{source, token};
      step.lookup.list_rows(step.plan, starts, at, found);
      if (places.order == RowOrder::by_source && found.count != 0) {
        found.count = 0;
        const std::uint32_t row = places.by_source.row_of(at);
        if (!places.room.has(row)) continue;
        describe_row(step.plan, step.group, at, row, found, out);
        pad_row(step, row, 0, starts, out);
      }
      places.room.keep_fitting(step.plan, starts, found);
      for (int i = 0; i < found.count; ++i) {
        const int group = found.local[i] + step.plan.shared_groups;
        places.order == RowOrder::padded ? pad_row(padded(step), found.row[i], group, starts, out)
                                         : pad_row(step, found.row[i], group, starts, out);
      }
    }
  }
}

}  // namespace ferry::cpu
