// The outputs of a dispatch that may be left out (WorldCapabilities::more_outputs), on a CPU rank. All of them follow
// only from the tables, so each is a pass of its own. Passes for outputs that are not given are left out.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/rows/lay_out.h"

namespace ferry::cpu {

// Rows that came, and for which there was no room.
inline std::uint32_t dropped_rows(const Plan& plan, const OrderedPlaces& places) {
  if (places.room.holds_all()) return 0;
  const FittingRows fitting(plan, places.room, places.starts, places.by_source);
  if (places.order == RowOrder::by_source)
    return places.by_source.offsets[plan.shape.ranks] - fitting.by_source().offsets[plan.shape.ranks];
  return rows_that_came(plan, places.starts) - rows_that_came(plan, fitting.starts());
}

// What follows from the row starts: of each group all that came, whatever there was room for.
inline void write_counts(const Plan& plan, const RowStarts& starts, const RowsOut& out) {
  const int sources = plan.shape.ranks, experts = plan.local_experts();
  for (int group = 0; group < plan.groups(); ++group) {
    const std::uint32_t filled = starts.filled[group];
    const int local = group - plan.shared_groups;
    if (out.counts != nullptr) out.counts[group] = static_cast<std::int32_t>(filled);
    for (int source = 0; out.source_starts != nullptr && source < sources; ++source) {
      const std::uint32_t of_shared = source <= plan.rank ? 0 : filled;  // own tokens, all of them
      const std::uint32_t start = local < 0 ? of_shared : starts.of_source[source * experts + local];
      out.source_starts[group * sources + source] = static_cast<std::int32_t>(start);
    }
  }
}

// Once for each dispatch that is whole.
inline void add_statistics(const Plan& plan, const RowStarts& starts, const std::vector<std::uint64_t>& waited_ns,
                           const RowsOut& out) {
  for (int group = 0; out.cumulative_counts != nullptr && group < plan.groups(); ++group)
    out.cumulative_counts[group] =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(out.cumulative_counts[group]) + starts.filled[group]);
  for (int source = 0; out.waited_ns != nullptr && source < plan.shape.ranks; ++source)
    out.waited_ns[source] += static_cast<std::int64_t>(waited_ns[static_cast<std::size_t>(source)]);
}

// by_expert and in_place: the rows between the rows of two groups, beside write_row_metadata. One worker's groups.
inline void mark_padding(const Plan& plan, FixedShare share, const RowStarts& starts, const RowsOut& out) {
  for (int group = share.index; group < plan.groups(); group += share.count) {
    const auto end = static_cast<std::uint32_t>(std::min<std::int64_t>(starts.group[group + 1], out.row_capacity));
    for (std::uint32_t row = starts.group[group] + starts.filled[group]; row < end; ++row) {
      clear_row(row, out);
      if (out.row_sources != nullptr) out.row_sources[row] = -1;
    }
  }
}

// padded: the rows past the end of a group. They stay as they were unless the caller wants zeros.
template <ReceiveStep S>
void zero_padded_rows(const S& step, FixedShare share, const RowStarts& starts, const RowsOut& out) {
  const auto of_rows = padded(step);
  for (int group = share.index; group < step.plan.groups(); group += share.count)
    for (std::uint32_t row = starts.group[group] + std::min(starts.filled[group], out.expert_stride);
         row < starts.group[group + 1]; ++row) {
      clear_row(row, out);
      if (out.scales.layout != ScaleLayout::none)
        of_rows.ops.zero_scales(step.group, out.scales, ScaleRow{row, starts.group[group], starts.tiles[group]});
    }
}

// by_source: the same of the rows past the last one.
template <ReceiveStep S>
void zero_rows_past_last(const S& step, FixedShare share, std::uint32_t rows, const RowsOut& out) {
  const auto top_k = static_cast<std::size_t>(step.plan.shape.top_k);
  for (std::int64_t row = std::int64_t{rows} + share.index; row < out.row_capacity; row += share.count) {
    const auto index = static_cast<std::size_t>(row);
    clear_row(index, out);
    if (out.row_topk_weights != nullptr) std::fill_n(out.row_topk_weights + index * top_k, top_k, 0.0f);
    if (out.scales.layout != ScaleLayout::none) step.ops.zero_scales(step.group, out.scales, ScaleRow{row, 0, 0});
  }
}

template <ReceiveStep S>
void write_padding(const S& step, FixedShare share, const OrderedPlaces& places, const RowsOut& out) {
  switch (places.order) {
    case RowOrder::by_expert:
    case RowOrder::in_place:
      return mark_padding(step.plan, share, places.starts, out);
    case RowOrder::padded:
      if (out.zeroes_padding) zero_padded_rows(step, share, places.starts, out);
      return;
    case RowOrder::by_source:
      if (out.zeroes_padding) zero_rows_past_last(step, share, places.by_source.offsets[step.plan.shape.ranks], out);
  }
}

inline bool wants_padding(const RowsOut& out) {
  return out.zeroes_padding || out.row_weights != nullptr || out.row_sources != nullptr ||
         out.row_scales.data != nullptr || out.global_scales.are_given();
}
inline bool wants_messages(const RowsOut& out) {
  return out.messages != nullptr || (out.source_offsets != nullptr && out.order != RowOrder::by_source);
}
inline bool wants_row_facts(const RowsOut& out) {
  return out.messages != nullptr || out.row_weights != nullptr || out.row_sources != nullptr;
}

// Calls visit(at) for each message of a source that names an expert of this rank; scratch.found has its rows.
template <ReceiveStep S, class Visit>
void for_each_message(const S& step, int source, const RowStarts& starts, TokenScratch& scratch, const Visit& visit) {
  for (int token = 0; token < static_cast<int>(starts.tokens[source]); ++token) {
    const TokenAt at{source, token};
    step.lookup.local_rows(step.group, step.plan, starts, at, entries_of(step, at), scratch.found);
    if (scratch.found.count != 0) visit(at);
  }
}

// One worker's sources: count[source + 1] is how many messages came from it.
template <ReceiveStep S>
void count_messages(const S& step, FixedShare share, const RowStarts& starts, TokenScratch& scratch,
                    std::uint32_t* count) {
  for (int source = share.index; source < step.plan.shape.ranks; source += share.count) {
    count[source + 1] = 0;
    for_each_message(step, source, starts, scratch, [&](TokenAt) { ++count[source + 1]; });
  }
}

// A line of `messages`.
inline void describe_message(const Plan& plan, TokenAt at, std::uint32_t number, const OrderedPlaces& places,
                             const LocalRows& found, const RowsOut& out) {
  if (out.messages == nullptr || number >= out.message_capacity) return;
  std::int32_t* line = out.messages + std::size_t{number} * (2 + static_cast<std::size_t>(plan.shape.top_k));
  line[0] = at.source;
  line[1] = at.token;
  for (int i = 0; i < found.count; ++i) {
    const bool by_source = places.order == RowOrder::by_source;
    const std::uint32_t row = by_source ? places.by_source.row_of(at) : found.row[i];
    const bool is_there = by_source ? places.room.has(row) : places.room.has(plan, places.starts, row, found.local[i]);
    line[2 + found.k[i]] = is_there ? static_cast<std::int32_t>(row) : -1;
  }
}

// Writes `messages`, row_weights and row_sources for one worker's sources. The lines of `messages` hold -1 before.
// `first`: the first message of each source.
template <ReceiveStep S>
void write_row_facts(const S& step, FixedShare share, const OrderedPlaces& places, const std::uint32_t* first,
                     const RowsOut& out, TokenScratch& scratch) {
  for (int source = share.index; source < step.plan.shape.ranks; source += share.count) {
    std::uint32_t number = first[source];
    for_each_message(step, source, places.starts, scratch, [&](TokenAt at) {
      const bool by_source = places.order == RowOrder::by_source;
      describe_message(step.plan, at, by_source ? places.by_source.row_of(at) : number++, places, scratch.found, out);
      places.room.keep_fitting(step.plan, places.starts, scratch.found);
      for (int i = 0; !by_source && i < scratch.found.count; ++i) {
        if (out.row_weights != nullptr) out.row_weights[scratch.found.row[i]] = scratch.found.weight[i];
        if (out.row_sources != nullptr) out.row_sources[scratch.found.row[i]] = source;
      }
    });
  }
}

// The rows of the fused shared expert: own tokens, with weight 1.
inline void write_shared_facts(const Plan& plan, const RowStarts& starts, const RowsOut& out) {
  for (std::uint32_t i = 0; plan.shared_groups != 0 && i < starts.filled[0]; ++i) {
    if (out.row_weights != nullptr) out.row_weights[starts.group[0] + i] = 1.0f;
    if (out.row_sources != nullptr) out.row_sources[starts.group[0] + i] = plan.rank;
  }
}

}  // namespace ferry::cpu
