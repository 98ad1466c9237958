// Dispatch, the last step: from messages to the rows of the experts. All backends run this text.
//
//   lay_out_shared_rows, lay_out_rows   each token as its message comes
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/protocol/contracts/row_places.h"
#include "ferry/detail/protocol/step.h"

namespace ferry {

// Copies the payload and the scales of a message to each of its rows. The format plays no part. The message is read
// once.
template <ReceiveStep S>
FERRY_HD void write_rows(const S& step, TokenAt at, const RowStarts& starts, const RowsOut& out, const LocalRows& to) {
  const auto& g = step.group;
  const std::byte* message = step.fabric.local(step.plan.map.message(step.epoch, at.source, at.token));
  const std::size_t payload_bytes = static_cast<std::uint32_t>(out.row_bytes);  // 32 bits: a shorter loop on GPUs
  step.ops.copy_to_rows(g, out.payload, out.row_bytes, to.row, to.count, message, payload_bytes);
  if (out.stores_scales)
    step.ops.store_scales(g, out.scales, message + payload_bytes, starts, step.plan.shared_groups, to);
  for (int i = g.thread(); out.src_info != nullptr && i < to.count; i += g.size()) {
    out.src_info[2 * static_cast<std::size_t>(to.row[i])] = at.token;
    out.src_info[2 * static_cast<std::size_t>(to.row[i]) + 1] = to.k[i];
  }
}

// Relies on I5. False: the message did not come.
template <ReceiveStep S>
FERRY_HD bool await_message(const S& step, TokenAt at) {
  return step.fabric.wait_at_least(step.group, step.plan.map.arrived(step.epoch, at.source, at.token), step.epoch,
                                   {Operation::dispatch, Phase::message, at.source, at.token});
}

// Lays out the rows of the fused shared expert: own messages, in token order. Relies on I5 for this rank's own slots.
template <ReceiveStep S>
FERRY_HD bool lay_out_shared_rows(const S& step, const SharedTokens& shared, FixedShare share, const RowStarts& starts,
                                  const RowsOut& out, TokenScratch& scratch) {
  LocalRows& to = scratch.found;
  for (int token = shared.begin + share.index; token < shared.end; token += share.count) {
    const TokenAt at{step.plan.rank, token};
    if (!await_message(step, at)) return false;
    if (step.lookup.sync_unit(step.group).thread() == 0) {
      to.count = 1;
      to.k[0] = step.plan.shape.top_k;
      to.local[0] = -step.plan.shared_groups;  // group 0
      to.row[0] = starts.group[0] + static_cast<std::uint32_t>(token - shared.begin);
    }
    step.group.sync();
    write_rows(step, at, starts, out, to);
    step.group.sync();
  }
  return true;
}

// Relies on I5: waits only for the token in hand, and calls lay_out(at, rows) for each token that has rows here. `log`
// keeps what was found, for combine.
template <ReceiveStep S, ArrivalLog<typename S::Lookup, typename S::Group> Log, class LayOut>
FERRY_HD bool for_each_arrival(const S& step, FixedShare share, const RowStarts& starts, const Log& log,
                               TokenScratch& scratch, const LayOut& lay_out) {
  LocalRows& to = scratch.found;
  const TokenSequence tokens(step.plan, starts, step.plan.rank);
  for (int position = share.index; position < tokens.length; position += share.count) {
    const TokenAt at = tokens.at(position);
    const int num_tokens = static_cast<int>(starts.tokens[at.source]);
    if (at.token >= num_tokens) continue;
    if constexpr (!S::Lookup::kHasHandle)  // I2
      if (!step.fabric.await_entries(step.group, step.plan, step.routing, step.epoch, at, num_tokens)) return false;
    log.keep(step.group, step.plan, at,
             step.lookup.local_rows(step.group, step.plan, starts, at, entries_of(step, at), to));
    if (to.count != 0) {
      if (!await_message(step, at)) return false;
      lay_out(at, to);
    }
    step.group.sync();
  }
  return true;
}

// Leaves only the rows for which there is room. The threads that share `found` do it once.
template <ReceiveStep S>
FERRY_HD void keep_fitting(const S& step, const RowPlaces& places, LocalRows& found) {
  const auto& unit = step.lookup.sync_unit(step.group);
  unit.sync();
  if (unit.thread() == 0) places.room.keep_fitting(step.plan, places.starts, found);
  unit.sync();
}

// Reads each message once, and writes it to each of its rows. `kMayOverflow`: the outputs may not have room for all
// rows. Then, too, all messages are awaited (I1), and the log keeps all rows.
template <bool kMayOverflow, ReceiveStep S, ArrivalLog<typename S::Lookup, typename S::Group> Log>
FERRY_HD bool lay_out_rows(const S& step, FixedShare share, const RowPlaces& places, const RowsOut& out, const Log& log,
                           TokenScratch& scratch) {
  return for_each_arrival(step, share, places.starts, log, scratch, [&](TokenAt at, LocalRows& to) {
    if constexpr (kMayOverflow) keep_fitting(step, places, to);
    if (!kMayOverflow || to.count != 0) write_rows(step, at, places.starts, out, to);
  });
}

}  // namespace ferry
