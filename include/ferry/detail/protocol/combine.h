// Combine: the phases that carry the experts' output rows home and sum them there.
//
//   send_results   (all blocks)  -> receive_results (all blocks) -> post_consumed (the last;
//   ferry/detail/protocol/dispatch.h) drain_results  (all blocks)  in place of receive_results, where a dispatch gives
//   up a round after send_results
//
// by_rank: the partial sum of expert rank d for token t lands in slot [t][j] of the source, j = how many smaller ranks
// t names. exact: row (t, k) lands in slot [t][k]. Where some ranks are reached by puts only, either lands where
// packed_results.h says. These slots need no second copy (I8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/formats/row_sum.h"
#include "ferry/detail/protocol/round.h"

namespace ferry {

// Where the sum of a token goes.
template <Fabric F>
FERRY_HD RowSink sink_of(const F& fabric, const CombineOut& out, int token) {
  RowSink sink;
  sink.data = out.tokens + token * out.token_bytes;
  sink.dtype = out.dtype;
  sink.token = token;
  fabric.hooks().set_epilogue(out, sink);
  return sink;
}

struct ResultCounts {
  std::uint64_t* bytes = nullptr;  // [ranks]
};

// A result's slot at its source, counted from the first one of its token, and its place in the send buffer.
struct ResultPlace {
  int index;
  std::uint32_t sent_index = 0;
};

// I9: of this rank's i-th result of a token, where results are packed.
FERRY_HD inline ResultPlace packed_place(const Plan& plan, int source, int token, int i) {
  const std::size_t entry = static_cast<std::size_t>(source) * plan.shape.max_tokens + token;
  const std::uint32_t sent_index = plan.packed->before[entry] + i;
  return {plan.map.index_of_slot(plan.packed->begin_at[source] + sent_index, token), sent_index};
}

// I15: where a result for `peer` is made: at the peer itself where it can be stored to, else in the send buffer, or
// where the fabric or the caller has room.
template <ThreadGroup G, SerialFabric F>
FERRY_HD std::byte* result_target(const Plan& plan, F& fabric, const G& g, int peer, int token,
                                  const ResultPlace& place, std::byte* staging) {
  if (std::byte* direct = fabric.peer_pointer(peer, plan.map.result(token, place.index))) return direct;
  if (plan.packed != nullptr) return fabric.local(plan.map.sent_result(peer, place.sent_index));
  return fabric.staging(g, staging);
}

// I7: a result is whole in its slot before `result_arrived` says so, whichever way it went.
template <ThreadGroup G, SerialFabric F>
FERRY_HD void deliver_result(const Plan& plan, F& fabric, const G& g, Epoch epoch, int source, int token, int index,
                             const std::byte* made_at, const ResultCounts& counted) {
  const std::size_t offset = plan.map.result(token, index);
  const std::size_t word = plan.map.result_arrived(token, index);
  g.sync();
  if (fabric.peer_pointer(source, offset) == made_at)
    fabric.signal_after_puts(g, source, word, epoch);
  else
    fabric.put_then_signal(g, source, {offset, made_at, plan.map.result_bytes(), word, epoch});
  if (g.thread() == 0) counted.bytes[source] += plan.map.result_bytes();
}

template <ThreadGroup G, SerialFabric F>
FERRY_HD void send_partial(const Plan& plan, F& fabric, const G& g, Epoch epoch, const CombineArgs& in, int source,
                           int token, const RoutingEntry* entries, TokenScratch& scratch, std::byte* staging,
                           const ResultCounts& counted) {
  const LocalRows& found = scratch.found;
  for (int i = g.thread(); i < found.count; i += g.size()) scratch.rows[i] = in.row(found.row[i], found.weight[i]);
  g.sync();
  const ResultPlace place =
      plan.packed != nullptr ? packed_place(plan, source, token, 0) : ResultPlace{partial_index(plan, entries)};
  RowSink sink;
  sink.data = result_target(plan, fabric, g, source, token, place, staging);
  sum_rows(g, scratch.rows, found.count, plan.shape.hidden, sink);
  deliver_result(plan, fabric, g, epoch, source, token, place.index, sink.data, counted);
}

template <ThreadGroup G, SerialFabric F>
FERRY_HD void send_each_row(const Plan& plan, F& fabric, const G& g, Epoch epoch, const CombineArgs& in, int source,
                            int token, const LocalRows& found, std::byte* staging, const ResultCounts& counted) {
  for (int i = 0; i < found.count; ++i) {
    const ResultPlace place = plan.packed != nullptr ? packed_place(plan, source, token, i) : ResultPlace{found.k[i]};
    std::byte* to = result_target(plan, fabric, g, source, token, place, staging);
    convert_row(g, in.row(found.row[i], 1.0f), plan.shape.hidden, to, DType::bf16);
    deliver_result(plan, fabric, g, epoch, source, token, place.index, to, counted);
  }
}

// I8: a result slot is written for e + 1 only after its rank published e + 1 (await_routing saw that), which follows
// its combine e. I18: rows come from the tables that I1 keeps, not from the caller's src_info, so none is ever used as
// an address.
template <ThreadGroup G, SerialFabric F>
FERRY_HD void send_results(const Plan& plan, F& fabric, const G& g, Epoch epoch, Block block, const RowStarts& starts,
                           const CombineArgs& in, std::byte* staging, TokenScratch& scratch,
                           const ResultCounts& counted) {
  const LocalRows& found = scratch.found;
  const TokenSequence tokens(plan, starts, plan.rank + 1);  // own tokens last: the others travel meanwhile
  for (int place = block.index; place < tokens.length; place += block.count) {
    const TokenAt at = tokens.at(place);
    if (at.token >= static_cast<int>(starts.tokens[at.source])) continue;
    const RoutingEntry* entries = entries_of(plan, fabric, epoch, at);
    find_local_rows(g, plan, starts, at, entries, scratch.found);
    if (found.count != 0 && plan.exact)
      send_each_row(plan, fabric, g, epoch, in, at.source, at.token, found, staging, counted);
    else if (found.count != 0)
      send_partial(plan, fabric, g, epoch, in, at.source, at.token, entries, scratch, staging, counted);
    g.sync();
  }
  fabric.finish_puts(g);
}

// The slots that a token's own table says will come, in the order of the sum: k ascending, or ranks ascending (I9).
template <ThreadGroup G>
FERRY_HD void find_results(const G& g, const Plan& plan, const RoutingEntry* entries, TokenResults& results,
                           NamedRanks& named) {
  if (g.thread() == 0) {
    int count = 0;
    if (!plan.exact) list_named_ranks(plan, entries, named);
    for (int j = 0; !plan.exact && j < named.count; ++j, ++count) {
      results.index[count] = j;
      results.rank[count] = named.rank[j];
    }
    for (int k = 0; plan.exact && k < plan.shape.top_k; ++k) {
      const int expert = plan.code.expert(entries[k].code);
      if (expert < 0) continue;
      results.index[count] = k;
      results.k[count] = k;
      results.rank[count++] = plan.owner_of(expert);
    }
    results.count = count;
  }
  g.sync();
}

// The same of an own token, also where results are packed (I9).
template <ThreadGroup G, Fabric F>
FERRY_HD void find_own_results(const Plan& plan, const F& fabric, const G& g, Epoch epoch, int token,
                               TokenScratch& scratch) {
  TokenResults& results = scratch.results;
  find_results(g, plan, entries_of(plan, fabric, epoch, {plan.rank, token}), results, scratch.named);
  if (plan.packed == nullptr) return;
  const std::uint32_t* of_result = plan.packed->of_result + token * plan.map.results_per_token();
  for (int i = g.thread(); i < results.count; i += g.size())
    results.index[i] = plan.map.index_of_slot(plan.packed->begin[results.rank[i]] + of_result[i], token);
  g.sync();
}

// Relies on I7. False: a rank did not come.
template <ThreadGroup G, Fabric F>
FERRY_HD bool await_results(const Plan& plan, F& fabric, const G& g, Epoch epoch, int token,
                            const TokenResults& results) {
  const auto word = [&](int i) { return plan.map.result_arrived(token, results.index[i]); };
  const auto site = [&](int i) { return WaitSite{Operation::combine, Phase::result, results.rank[i], token}; };
  return fabric.wait_for_each(g, results.count, word, epoch, site, nullptr);
}

template <ThreadGroup G, Fabric F>
FERRY_HD void sum_token(const Plan& plan, F& fabric, const G& g, const RowStarts& starts, const CombineArgs& in,
                        const CombineOut& out, int token, TokenScratch& scratch) {
  const TokenResults& results = scratch.results;
  const auto& noting = sync_unit(g);
  for (int i = noting.thread(); i < results.count; i += noting.size()) {
    const float weight = plan.exact ? fabric.hooks().router_weight(in.weights, token, results.k[i]) : 1.0f;
    scratch.rows[i] = {fabric.local(plan.map.result(token, results.index[i])), weight, false};
  }
  int count = results.count;
  if (token >= in.shared_begin && token < in.shared_end) {
    if (noting.thread() == 0)
      scratch.rows[count] = in.row(starts.group[0] + static_cast<std::uint32_t>(token - in.shared_begin), 1.0f);
    ++count;
  }
  g.sync();
  sum_rows(g, scratch.rows, count, plan.shape.hidden, sink_of(fabric, out, token));
}

template <ThreadGroup G, Fabric F>
FERRY_HD void copy_unreduced(const Plan& plan, F& fabric, const G& g, const CombineOut& out, int token,
                             const TokenResults& results) {
  const std::size_t row_bytes = static_cast<std::size_t>(plan.shape.hidden) * size_of(out.dtype);
  std::byte* to = out.tokens + token * out.token_bytes;
  int next = 0;
  for (int k = 0; k < plan.shape.top_k; ++k, to += row_bytes) {
    if (next < results.count && results.k[next] == k) {
      const std::byte* result = fabric.local(plan.map.result(token, results.index[next]));
      convert_row(g, {result, 1.0f, false}, plan.shape.hidden, to, out.dtype);
      ++next;
    } else {
      fill_zero(g, to, row_bytes);
    }
  }
}

// A token whose results are there.
template <ThreadGroup G, Fabric F>
FERRY_HD void reduce_token(const Plan& plan, F& fabric, const G& g, const RowStarts& starts, const CombineArgs& in,
                           const CombineOut& out, int token, TokenScratch& scratch) {
  if (out.unreduced)
    copy_unreduced(plan, fabric, g, out, token, scratch.results);
  else
    sum_token(plan, fabric, g, starts, in, out, token, scratch);
  g.sync();
}

// Sums every token of this rank in the fixed order: k ascending (exact) or ranks ascending (by_rank), the shared row
// last.
template <ThreadGroup G, Fabric F>
FERRY_HD bool receive_results(const Plan& plan, F& fabric, const G& g, Epoch epoch, int num_tokens, Block block,
                              const RowStarts& starts, const CombineArgs& in, const CombineOut& out,
                              TokenScratch& scratch) {
  for (int token = block.index; token < num_tokens; token += block.count) {
    find_own_results(plan, fabric, g, epoch, token, scratch);
    if (!await_results(plan, fabric, g, epoch, token, scratch.results)) return false;
    reduce_token(plan, fabric, g, starts, in, out, token, scratch);
  }
  return true;
}

// I8: for a round that is given up although its results are on their way. After true all have landed, so none can land
// in a slot of the next round, where another rank may write. A rank that the mask takes out by now is not waited for.
template <ThreadGroup G, Fabric F>
FERRY_HD bool drain_results(const Plan& plan, F& fabric, const G& g, Epoch epoch, Block block, TokenScratch& scratch) {
  TokenResults& results = scratch.results;
  const int num_tokens = tokens_of(plan, fabric, epoch, plan.rank);
  for (int token = block.index; token < num_tokens; token += block.count) {
    find_own_results(plan, fabric, g, epoch, token, scratch);
    if (g.thread() == 0) {
      int kept = 0;
      for (int i = 0; i < results.count; ++i) {
        if (plan.is_masked(results.rank[i])) continue;
        results.index[kept] = results.index[i];
        results.rank[kept++] = results.rank[i];
      }
      results.count = kept;
    }
    g.sync();
    if (!await_results(plan, fabric, g, epoch, token, results)) return false;
    g.sync();
  }
  return true;
}

}  // namespace ferry
