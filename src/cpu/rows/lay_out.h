// From messages to rows on a CPU rank, in the order that the dispatch asked for.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/rows/kept_call.h"
#include "cpu/rows/row_scales.h"
#include "cpu/steps/lookup/row_room.h"
#include "exchange/calls/call_order.h"
#include "exchange/sizes/row_counts.h"
#include "ferry/detail/protocol/dispatch_receive.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/row_metadata.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/rows_in_place.h"

namespace ferry::cpu {

// Where the rows of a dispatch lie.
struct RowPlaces {
  RowOrder order;
  const RowStarts& starts;
  SourceRows by_source;  // only of that order
  RowRoom room{};
};

inline FoundStarts starts_of(const RowPlaces& places) {
  return {places.order, places.starts, places.by_source.offsets};
}

// Rows that came, without those that only fill groups up.
inline std::uint32_t rows_that_came(const Plan& plan, const RowStarts& starts) {
  std::uint32_t rows = 0;
  for (int group = 0; group < plan.groups(); ++group) rows += starts.filled[group];
  return rows;
}

template <ReceiveStep S>
void write_metadata_of(const S& step, RowOrder order, const RowStarts& starts, const SourceRows& by_source,
                       const RowsOut& out) {
  const FixedShare all{0, 1};
  switch (order) {
    case RowOrder::by_expert:
      return write_row_metadata(step.plan, step.group, step.ops, all, starts, out);
    case RowOrder::by_source:
      return write_source_metadata(step.plan, step.group, step.ops, all, starts, by_source, out);
    case RowOrder::padded:
      return write_padded_metadata(step.plan, step.group, step.ops, all, starts, out);
    case RowOrder::in_place:
      write_row_metadata(step.plan, step.group, step.ops, all, starts, out);
      return mark_padding_of_gather(step.plan, step.group, all, starts, out);
  }
}

// What follows only from the row starts. It comes before lay_out_share. Of groups that end past the room, what is in
// it is marked; offsets are the true ones.
template <ReceiveStep S>
void write_metadata(const S& step, const RowPlaces& places, const RowsOut& out) {
  if (places.room.holds_all()) return write_metadata_of(step, places.order, places.starts, places.by_source, out);
  const FittingRows fitting(step.plan, places.room, places.starts, places.by_source);
  write_metadata_of(step, places.order, fitting.starts(), fitting.by_source(), out);
  for (int group = 0; out.row_offsets != nullptr && group <= step.plan.groups(); ++group)
    out.row_offsets[group] = places.starts.group[group];
  for (int source = 0; places.by_source.offsets != nullptr && source <= step.plan.shape.ranks; ++source)
    out.source_offsets[source] = places.by_source.offsets[source];
}

// The operations on rows in this order.
template <ReceiveStep S>
auto with_row_ops(const S& step, const RowsOut& out) {
  return with_ops(step, RowScaleOps<typename S::Ops>{{step.ops}, out.row_scales});
}

// As lay_out_shared_rows and lay_out_rows; the room holds all shared rows.
template <ReceiveStep S>
bool lay_out_groups(const S& step, const SharedTokens& shared, FixedShare share, const RowPlaces& places,
                    const RowsOut& out, TokenScratch& scratch) {
  const RowStarts& starts = places.starts;
  return lay_out_shared_rows(step, shared, share, starts, out, scratch) &&
         for_each_arrival(step, share, starts, NoLog{}, scratch, [&](TokenAt at, LocalRows& to) {
           places.room.keep_fitting(step.plan, starts, to);
           if (to.count != 0) write_rows(step, at, starts, out, to);
         });
}

// Lays out one worker's part of the rows. It awaits messages even if their rows have no room (I1). False: a rank did
// not come.
template <ReceiveStep S>
bool lay_out_share(const S& step, const SharedTokens& shared, FixedShare share, const RowPlaces& places,
                   const RowsOut& out, TokenScratch& scratch) {
  const RowStarts& starts = places.starts;
  switch (places.order) {
    case RowOrder::by_expert:
      break;
    case RowOrder::by_source: {
      const auto writing = with_row_ops(step, out);
      return for_each_arrival(step, share, starts, NoLog{}, scratch, [&](TokenAt at, LocalRows& found) {
        const std::uint32_t row = places.by_source.row_of(at);
        if (places.room.has(row)) write_row_of_token(writing, at, row, starts, out, found);
      });
    }
    case RowOrder::padded:
      return lay_out_groups(with_row_ops(padded(step), out), shared, share, places, out, scratch);
    case RowOrder::in_place:
      return for_each_arrival(step, share, starts, NoLog{}, scratch, [&](TokenAt at, LocalRows& to) {
        places.room.keep_fitting(step.plan, starts, to);
        name_slot(step, at, out, to);
      });
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
