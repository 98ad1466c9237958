// What the outputs of a dispatch say before the first message comes, on a CPU rank: offsets, counts and padding, in the
// order that the dispatch asked for.
#pragma once

#include "cpu/rows/ordered_places.h"
#include "cpu/steps/lookup/row_room.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/row_metadata.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/rows_in_place.h"
#include "ferry/detail/protocol/step.h"

namespace ferry::cpu {

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

// What follows only from the row starts. Of groups that end past the room, what is in
// it is marked; offsets are the true ones.
template <ReceiveStep S>
void write_metadata(const S& step, const OrderedPlaces& places, const RowsOut& out) {
  if (places.room.holds_all()) return write_metadata_of(step, places.order, places.starts, places.by_source, out);
  const FittingRows fitting(step.plan, places.room, places.starts, places.by_source);
  write_metadata_of(step, places.order, fitting.starts(), fitting.by_source(), out);
  for (int group = 0; out.row_offsets != nullptr && group <= step.plan.groups(); ++group)
    out.row_offsets[group] = places.starts.group[group];
  for (int source = 0; places.by_source.offsets != nullptr && source <= step.plan.shape.ranks; ++source)
    out.source_offsets[source] = places.by_source.offsets[source];
}

}  // namespace ferry::cpu
