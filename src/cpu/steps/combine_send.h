// Combine on the CPU, the sending side: the rows of the experts, or their partial sums, go home. GPUs restate it in
// ferry/detail/cuda/steps/combine_send.cuh, with their ArrivedRows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/steps/lookup/row_room.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "cpu/steps/weights/returned_weights.h"
#include "ferry/detail/layout/call_word.h"
#include "ferry/detail/protocol/combine_reduce.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/step.h"

namespace ferry::cpu {

// I9: of this rank's i-th result of a token, where results are packed.
inline ResultSlot packed_slot(const Plan& plan, TokenAt at, int i) {
  const std::size_t entry = static_cast<std::size_t>(at.source) * plan.shape.max_tokens + at.token;
  const std::uint32_t sent_index = plan.packed->before[entry] + i;
  return {plan.map.index_of_slot(plan.packed->begin_at[at.source] + sent_index, at.token), sent_index};
}

// I15: where a result is made: in its slot where the source can be stored to, else in the send buffer, or where the
// fabric or the caller has room.
template <class S>
std::byte* result_target(const S& step, TokenAt at, const ResultSlot& slot, std::byte* staging) {
  const Plan& plan = step.plan;
  if (std::byte* direct = step.fabric.peer_pointer(at.source, plan.map.result(at.token, slot.index))) return direct;
  if (plan.packed != nullptr) return step.fabric.local(plan.map.sent_result(at.source, slot.sent_index));
  return step.fabric.staging(step.group, staging);
}

// I7: a result is whole in its slot before `result_arrived` says so, whichever way it went.
template <class S>
void deliver_result(const S& step, TokenAt at, int index, const std::byte* made_at, const ResultCounts& counted) {
  const HeapMap& map = step.plan.map;
  const auto& g = step.group;
  const std::size_t offset = map.result(at.token, index);
  const std::size_t word = map.result_arrived(at.token, index);
  g.sync();
  if (step.fabric.peer_pointer(at.source, offset) == made_at)
    step.fabric.signal_after_puts(g, at.source, word, step.epoch);
  else
    step.fabric.put_then_signal(g, at.source, {offset, made_at, map.result_bytes(), word, step.epoch});
  if (g.thread() == 0) counted.bytes[at.source] += map.result_bytes();
}

// by_rank: the sum of this rank's rows of a token.
template <ResultStep S>
void send_partial(const S& step, const RowStarts& starts, const ReturnedRows& rows, TokenAt at, std::byte* staging,
                  TokenScratch& scratch, const ResultCounts& counted) {
  const auto& g = step.group;
  const LocalRows& found = scratch.found;
  for (int i = g.thread(); i < found.count; i += g.size())
    scratch.rows[i] = rows.of_expert(step.plan, starts, found, i, rows.in.weight_of(found.weight[i]));
  g.sync();
  const ResultSlot slot = step.plan.packed != nullptr
                              ? packed_slot(step.plan, at, 0)
                              : ResultSlot{step.lookup.slot(step.plan, at, entries_of(step, at))};
  std::byte* to = result_target(step, at, slot, staging);
  step.ops.write_sum(g, scratch.rows, found.count, step.plan.shape.hidden, to);
  deliver_result(step, at, slot.index, to, counted);
  if (step.plan.map.returns_weights())
    return_weights(step, at, slot, GivenWeights{rows}.of_rows(step.plan, starts, found), counted);
}

// exact: each row by itself.
template <ResultStep S>
void send_each_row(const S& step, const RowStarts& starts, const ReturnedRows& rows, TokenAt at, const LocalRows& found,
                   std::byte* staging, const ResultCounts& counted) {
  for (int i = 0; i < found.count; ++i) {
    const ResultSlot slot = step.plan.packed != nullptr ? packed_slot(step.plan, at, i) : ResultSlot{found.k[i]};
    std::byte* to = result_target(step, at, slot, staging);
    step.ops.write_row(step.group, rows.of_expert(step.plan, starts, found, i, 1.0f), step.plan.shape.hidden, to);
    deliver_result(step, at, slot.index, to, counted);
    if (step.plan.map.returns_weights())
      return_weights(step, at, slot, GivenWeights{rows}.of_row(step.plan, starts, found, i), counted);
  }
}

// by_source: a row is the caller's sum over this rank's experts, and travels as it is. I18, I23: its number comes from
// the token lists. A token of a rank that the mask takes out by now has no result.
template <ResultStep S>
void send_rows_by_source(const S& step, FixedShare share, const RowStarts& starts, const SourceRows& rows,
                         const ReturnedRows& returned, std::byte* staging, const ResultCounts& counted) {
  const Plan& plan = step.plan;
  const TokenSequence tokens(plan, starts, plan.rank + 1);  // own tokens last: the others travel meanwhile
  for (int place = share.index; place < tokens.length; place += share.count) {
    const TokenAt at = tokens.at(place);
    if (at.token >= static_cast<int>(starts.tokens[at.source]) || plan.is_masked(at.source) || !rows.has(at)) continue;
    const ResultSlot slot = plan.packed != nullptr ? packed_slot(plan, at, 0)
                                                   : ResultSlot{step.lookup.slot(plan, at, entries_of(step, at))};
    std::byte* to = result_target(step, at, slot, staging);
    const std::uint32_t row = rows.row_of(at);
    step.ops.write_row(step.group, returned.at(row, returned.room.has(row), 1.0f), plan.shape.hidden, to);
    deliver_result(step, at, slot.index, to, counted);
    if (plan.map.returns_weights())
      return_weights(step, at, slot, GivenWeights{returned}.of_source_row(row, plan.shape.top_k), counted);
    step.group.sync();
  }
  step.fabric.finish_puts(step.group);
}

// I8: result slots need one copy: nothing of a combine is sent to a rank that has not summed all combines before. Where
// a dispatch came between, the word is there already: its rank posted it before it began that dispatch. Relies on I6.
template <ThreadGroup G, SerialFabric F>
bool await_summed(const Plan& plan, F& fabric, const G& g, Epoch result) {
  const auto word = [&](int peer) { return plan.map.summed(peer); };
  const auto site = [&](int peer) { return WaitSite{Operation::combine, Phase::summed, peer, -1}; };
  return result == kFirstEpoch || fabric.wait_for_each(g, plan.shape.ranks, word, result, site, plan.masked);
}

// I22: tells every peer that combine `result` has begun here. `mark` names its routing.
template <ThreadGroup G, SerialFabric F>
void post_combining(const Plan& plan, F& fabric, const G& g, Epoch result, std::uint32_t mark) {
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.combining(plan.rank), call_word(result, mark),
                                plan.masked);
}

// Relies on I8: await_summed. I18: rows come from the tables that I1 keeps, not from the caller's src_info, so no
// number of the caller's becomes an address.
template <ResultStep S>
void send_results(const S& step, FixedShare share, const RowStarts& starts, const ReturnedRows& rows,
                  std::byte* staging, TokenScratch& scratch, const ResultCounts& counted) {
  const Plan& plan = step.plan;
  const LocalRows& found = scratch.found;
  const TokenSequence tokens(plan, starts, plan.rank + 1);  // own tokens last: the others travel meanwhile
  for (int place = share.index; place < tokens.length; place += share.count) {
    const TokenAt at = tokens.at(place);
    if (at.token >= static_cast<int>(starts.tokens[at.source])) continue;
    step.lookup.local_rows(step.group, plan, starts, at, entries_of(step, at), scratch.found);
    if (found.count != 0 && plan.exact)
      send_each_row(step, starts, rows, at, found, staging, counted);
    else if (found.count != 0)
      send_partial(step, starts, rows, at, staging, scratch, counted);
    step.group.sync();
  }
  step.fabric.finish_puts(step.group);
}

}  // namespace ferry::cpu
