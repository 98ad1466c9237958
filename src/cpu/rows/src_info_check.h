// check_src_info: a caller's src_info against what the dispatch laid out (I18).
#pragma once

#include <cstdint>

#include "cpu/rows/ordered_places.h"
#include "exchange/calls/call_order.h"
#include "exchange/checks/validate.h"
#include "ferry/detail/protocol/step.h"

namespace ferry::cpu {

template <ReceiveStep S>
void check_src_info(const CheckContext& context, const Ticket& ticket, const std::int32_t* src_info, const S& step,
                    const OrderedPlaces& places) {
  const RowStarts& starts = places.starts;
  const TokenRange shared = ticket.shared;
  for (int token = shared.begin; token < shared.end; ++token)
    check_src_info_row(context, src_info, starts.group[0] + static_cast<std::uint32_t>(token - shared.begin),
                       context.rank, ticket.num_tokens, token, context.shape.top_k);
  LocalRows found;
  for (int source = 0; source < step.plan.shape.ranks; ++source) {
    if (step.plan.is_masked(source)) continue;  // a replay made its rows padding, the handle's dispatch did not
    const int num_tokens = static_cast<int>(starts.tokens[source]);
    for (int token = 0; token < num_tokens; ++token) {
      const TokenAt at{source, token};
      if (places.order == RowOrder::by_source) {
        if (places.by_source.has(at) && places.room.has(places.by_source.row_of(at)))
          check_source_info_row(context, src_info, places.by_source.row_of(at), source, token);
        continue;
      }
      step.lookup.local_rows(step.group, step.plan, starts, at, entries_of(step, at), found);
      places.room.keep_fitting(step.plan, starts, found);
      for (int i = 0; i < found.count; ++i)
        check_src_info_row(context, src_info, found.row[i], source, num_tokens, token, found.k[i]);
    }
  }
}

}  // namespace ferry::cpu
