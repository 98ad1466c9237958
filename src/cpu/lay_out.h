// From messages to rows on a CPU rank, in the order that the dispatch asked for.
#pragma once

#include "cpu/kept_call.h"
#include "exchange/call_order.h"
#include "ferry/detail/protocol/dispatch_receive.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/rows_in_place.h"

namespace ferry::cpu {

// Where the rows of a dispatch lie.
struct RowPlaces {
  RowOrder order;
  const RowStarts& starts;
  SourceRows by_source;  // of that order alone
};

// Rows that came, without those that only fill groups up.
inline std::uint32_t rows_that_came(const Plan& plan, const RowStarts& starts) {
  std::uint32_t rows = 0;
  for (int group = 0; group < plan.groups(); ++group) rows += starts.filled[group];
  return rows;
}

// What follows from the row starts alone. It comes before lay_out_share.
template <ReceiveStep S>
void write_metadata(const S& step, const RowPlaces& places, const RowsOut& out) {
  const FixedShare all{0, 1};
  switch (places.order) {
    case RowOrder::by_expert:
      return write_row_metadata(step.plan, step.group, step.ops, all, places.starts, out);
    case RowOrder::by_source:
      return write_source_metadata(step.plan, step.group, step.ops, all, places.starts, places.by_source, out);
    case RowOrder::padded:
      return write_padded_metadata(step.plan, step.group, step.ops, all, places.starts, out);
    case RowOrder::in_place:
      write_row_metadata(step.plan, step.group, step.ops, all, places.starts, out);
      return mark_padding_of_gather(step.plan, step.group, all, places.starts, out);
  }
}

template <ReceiveStep S>
bool lay_out_by_expert(const S& step, const SharedTokens& shared, FixedShare share, const RowStarts& starts,
                       const RowsOut& out, TokenScratch& scratch) {
  return lay_out_shared_rows(step, shared, share, starts, out, scratch) &&
         lay_out_rows(step, share, starts, out, NoLog{}, scratch);
}

// One worker's part of the rows. False: a rank did not come.
template <ReceiveStep S>
bool lay_out_share(const S& step, const SharedTokens& shared, FixedShare share, const RowPlaces& places,
                   const RowsOut& out, TokenScratch& scratch) {
  switch (places.order) {
    case RowOrder::by_expert:
      break;
    case RowOrder::by_source:
      return lay_out_by_source(step, share, places.starts, places.by_source, out, NoLog{}, scratch);
    case RowOrder::padded:
      return lay_out_by_expert(padded(step), shared, share, places.starts, out, scratch);
    case RowOrder::in_place:
      return lay_out_in_place(step, share, places.starts, out, NoLog{}, scratch);
  }
  return lay_out_by_expert(step, shared, share, places.starts, out, scratch);
}

// A row whose message will not come: padding in place of a token.
template <ReceiveStep S>
void pad_row(const S& step, std::uint32_t row, int group, const RowStarts& starts, const RowsOut& out) {
  if (out.src_info != nullptr)
    out.src_info[2 * static_cast<std::size_t>(row)] = out.src_info[2 * static_cast<std::size_t>(row) + 1] = -1;
  if (out.gather != nullptr) out.gather[row] = -1;
  if (out.stores_scales)
    step.ops.zero_scales(step.group, out.scales, ScaleRow{row, starts.group[group], starts.tiles[group]});
}

// Rows of sources that the mask took out since the handle's dispatch become padding: no message comes for them.
template <ReceiveStep S>
void pad_rows_of_masked(const S& step, const KeptCall& call, const RowPlaces& places, const RowsOut& out,
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
        describe_row(step.plan, step.group, at, row, found, out);
        pad_row(step, row, 0, starts, out);
      }
      for (int i = 0; i < found.count; ++i) {
        const int group = found.local[i] + step.plan.shared_groups;
        places.order == RowOrder::padded ? pad_row(padded(step), found.row[i], group, starts, out)
                                         : pad_row(step, found.row[i], group, starts, out);
      }
    }
  }
}

}  // namespace ferry::cpu
