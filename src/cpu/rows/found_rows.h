// FoundRows: where the rows of a CPU rank's newest dispatch without a handle lie.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu/rows/ordered_places.h"
#include "cpu/steps/routing/token_lists.h"
#include "cpu/steps/row_starts.h"
#include "exchange/calls/call_order.h"

namespace ferry::cpu {

class FoundRows {
 public:
  explicit FoundRows(const Plan& plan)
      : words_(static_cast<std::size_t>(row_start_words(plan))),
        to_fill_(row_starts_at(plan, words_.data())),
        starts_(to_fill_),
        source_offsets_(static_cast<std::size_t>(plan.shape.ranks) + 1) {}
  FoundRows(const FoundRows&) = delete;
  FoundRows& operator=(const FoundRows&) = delete;

  // I4, I23. Relies on I2.
  template <Fabric F>
  void find(const Plan& plan, const F& fabric, const Ticket& ticket) {
    const TokenRange shared = ticket.shared;
    room_ = {};
    find_row_starts(plan, fabric, ticket.routing,
                    {shared.end - shared.begin, static_cast<std::uint32_t>(ticket.rows.expert_stride)}, to_fill_);
    num_rows_ = starts_.group[plan.groups()];
    if (ticket.rows.order != RowOrder::by_source) return;
    const SourceRows rows = places(plan, fabric, ticket).by_source;
    find_source_offsets(plan, rows.lists, rows.words, source_offsets_.data());
    num_rows_ = source_offsets_.back();
  }

  template <Fabric F>
  OrderedPlaces places(const Plan& plan, const F& fabric, const Ticket& ticket) const {
    OrderedPlaces places{{starts_, {}, room_}, ticket.rows.order};
    if (ticket.rows.order == RowOrder::by_source)
      places.by_source = {source_offsets_.data(),
                          reinterpret_cast<const std::uint64_t*>(fabric.local(plan.map.token_list(ticket.routing, 0))),
                          token_list_words(plan.shape.max_tokens)};
    return places;
  }
  const RowStarts& starts() const { return starts_; }
  std::uint32_t num_rows() const { return num_rows_; }

  // The room in the outputs of this dispatch.
  void set_room(const RowRoom& room) { room_ = room; }
  const RowRoom& room() const { return room_; }
  std::uint32_t rows_with_room() const { return std::min(num_rows_, room_.rows); }

 private:
  std::vector<std::uint32_t> words_;
  RowStartsToFill to_fill_;
  RowStarts starts_;  // the same words
  std::vector<std::uint32_t> source_offsets_;
  std::uint32_t num_rows_ = 0;
  RowRoom room_;
};

}  // namespace ferry::cpu
