// Combine: the phases that carry the experts' output rows home and sum them there.
//
//   send_results   (all blocks)  -> receive_results (all blocks) -> post_consumed (the last; protocol/dispatch.h)
//
// by_rank: the partial sum of expert rank d for token t lands in slot [t][j] of the source, j = how many smaller ranks
// t names. exact: row (t, k) lands in slot [t][k]. These slots need no second copy (I8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/round.h"
#include "shared/copy.h"
#include "shared/row_sum.h"

namespace ferry {

struct CombineArgs {
  const std::byte* rows = nullptr;
  std::int64_t row_bytes = 0;
  bool wide = false;  // float32 rows, else bf16
  Weights weights;    // exact only
  int shared_begin = 0;
  int shared_end = 0;

  FERRY_HD SumRow row(std::uint32_t index, float weight) const {
    return {rows + static_cast<std::int64_t>(index) * row_bytes, weight, wide};
  }
};

struct CombineOut {
  std::byte* tokens = nullptr;
  DType dtype = DType::bf16;
  std::int64_t token_bytes = 0;  // from one token to the next
  bool unreduced = false;
  void (*epilogue)(void* context, int token, int column, const float* values, int count) = nullptr;
  void* context = nullptr;
};

struct ResultCounts {
  std::uint64_t* bytes = nullptr;  // [ranks]
};

// Where a result for slot `offset` of `peer` is made: at the peer itself where it can be stored to, else in `staged`.
template <Fabric F>
FERRY_HD std::byte* result_target(F& fabric, int peer, std::size_t offset, std::byte* staged) {
  std::byte* direct = fabric.peer_pointer(peer, offset);
  return direct != nullptr ? direct : staged;
}

// I7: a result is whole in its slot before `result_arrived` says so, whichever way it went.
template <ThreadGroup G, Fabric F>
FERRY_HD void deliver_result(const Plan& plan, F& fabric, const G& g, Epoch epoch, int source, int token, int index,
                             const std::byte* made_at, const ResultCounts& counted) {
  const std::size_t offset = plan.map.result(token, index);
  const std::size_t word = plan.map.result_arrived(token, index);
  if (fabric.peer_pointer(source, offset) == made_at)
    fabric.signal_after_puts(g, source, word, epoch);
  else
    fabric.put_then_signal(g, source, offset, made_at, plan.map.result_bytes(), word, epoch);
  if (g.thread() == 0) counted.bytes[source] += plan.map.result_bytes();
}

// I9: the slot of this rank's partial, from the source's table: how many smaller ranks the token names.
FERRY_HD inline int partial_index(const Plan& plan, const RoutingEntry* entries) {
  NamedRanks named;
  find_named_ranks(plan, entries, named);
  int index = 0;
  while (index < named.count && named.rank[index] < plan.rank) ++index;
  return index;
}

template <ThreadGroup G, Fabric F>
FERRY_HD void send_partial(const Plan& plan, F& fabric, const G& g, Epoch epoch, const CombineArgs& in, int source,
                           int token, const RoutingEntry* entries, const LocalRows& found, std::byte* staging,
                           const ResultCounts& counted) {
  const int index = partial_index(plan, entries);
  const bool staged = plan.map.region_bytes(HeapMap::kSentResults) != 0;
  std::byte* to = result_target(fabric, source, plan.map.result(token, index),
                                staged ? fabric.local(plan.map.sent_result(source, token, 0)) : staging);
  SumRow rows[kMaxTopK];
  for (int i = 0; i < found.count; ++i) rows[i] = in.row(found.row[i], found.weight[i]);
  RowSink sink;
  sink.data = to;
  sum_rows(g, rows, found.count, plan.shape.hidden, sink);
  g.sync();
  deliver_result(plan, fabric, g, epoch, source, token, index, to, counted);
}

template <ThreadGroup G, Fabric F>
FERRY_HD void send_each_row(const Plan& plan, F& fabric, const G& g, Epoch epoch, const CombineArgs& in, int source,
                            int token, const LocalRows& found, std::byte* staging, const ResultCounts& counted) {
  const bool staged = plan.map.region_bytes(HeapMap::kSentResults) != 0;
  for (int i = 0; i < found.count; ++i) {
    const int k = found.k[i];
    std::byte* to = result_target(fabric, source, plan.map.result(token, k),
                                  staged ? fabric.local(plan.map.sent_result(source, token, k)) : staging);
    convert_row(g, in.row(found.row[i], 1.0f), plan.shape.hidden, to, DType::bf16);
    g.sync();
    deliver_result(plan, fabric, g, epoch, source, token, k, to, counted);
  }
}

// I8: a result slot is written for e + 1 only after its rank published e + 1 (await_routing saw that), which follows
// its combine e. Rows come from the tables that I1 keeps, not from the caller's src_info, so none is ever used as an
// address.
template <ThreadGroup G, Fabric F>
FERRY_HD void send_results(const Plan& plan, F& fabric, const G& g, Epoch epoch, Block block, const RowStarts& starts,
                           const CombineArgs& in, std::byte* staging, const ResultCounts& counted) {
  LocalRows found;
  for (int step = 1; step <= plan.shape.ranks; ++step) {
    const int source = (plan.rank + step) % plan.shape.ranks;  // own tokens last: the others travel meanwhile
    const RoutingEntry* table = table_of(plan, fabric, epoch, source);
    const int num_tokens = tokens_of(plan, fabric, epoch, source);
    for (int token = block.index; token < num_tokens; token += block.count) {
      const RoutingEntry* entries = table + static_cast<std::size_t>(token) * plan.shape.top_k;
      find_local_rows(plan, starts, source, entries, found);
      if (found.count == 0) continue;
      if (plan.exact)
        send_each_row(plan, fabric, g, epoch, in, source, token, found, staging, counted);
      else
        send_partial(plan, fabric, g, epoch, in, source, token, entries, found, staging, counted);
    }
  }
}

// What one token's sum is made of: the slots that its own table says will come, in order, and the shared row last.
struct TokenResults {
  int count = 0;
  int index[kMaxTopK];  // slot
  int rank[kMaxTopK];   // who writes it
  int k[kMaxTopK];      // exact only
};

FERRY_HD inline void find_results(const Plan& plan, const RoutingEntry* entries, TokenResults& results) {
  results.count = 0;
  if (plan.exact) {
    for (int k = 0; k < plan.shape.top_k; ++k) {
      const int expert = plan.code.expert(entries[k].code);
      if (expert < 0) continue;
      const int at = results.count++;
      results.index[at] = k;
      results.k[at] = k;
      results.rank[at] = owner_of(plan.shape, expert);
    }
    return;
  }
  NamedRanks named;
  find_named_ranks(plan, entries, named);
  results.count = named.count;
  for (int j = 0; j < named.count; ++j) {
    results.index[j] = j;
    results.k[j] = 0;
    results.rank[j] = named.rank[j];
  }
}

// Relies on I7. False: a rank did not come.
template <ThreadGroup G, Fabric F>
FERRY_HD bool await_results(const Plan& plan, F& fabric, const G& g, Epoch epoch, int token,
                            const TokenResults& results) {
  for (int i = 0; i < results.count; ++i) {
    if (!fabric.wait_at_least(g, plan.map.result_arrived(token, results.index[i]), epoch,
                              {Operation::combine, Phase::result, results.rank[i], token}))
      return false;
  }
  return true;
}

template <ThreadGroup G, Fabric F>
FERRY_HD void sum_token(const Plan& plan, F& fabric, const G& g, const RowStarts& starts, const CombineArgs& in,
                        const CombineOut& out, int token, const TokenResults& results) {
  SumRow rows[kMaxTopK + 1];
  int count = 0;
  for (int i = 0; i < results.count; ++i) {
    const float weight = plan.exact ? in.weights.at(token, results.k[i]) : 1.0f;
    rows[count++] = {fabric.local(plan.map.result(token, results.index[i])), weight, false};
  }
  if (token >= in.shared_begin && token < in.shared_end)
    rows[count++] = in.row(starts.group[0] + static_cast<std::uint32_t>(token - in.shared_begin), 1.0f);
  RowSink sink;
  sink.data = out.tokens + token * out.token_bytes;
  sink.dtype = out.dtype;
  sink.epilogue = out.epilogue;
  sink.context = out.context;
  sink.token = token;
  sum_rows(g, rows, count, plan.shape.hidden, sink);
}

template <ThreadGroup G, Fabric F>
FERRY_HD void copy_unreduced(const Plan& plan, F& fabric, const G& g, const CombineOut& out, int token,
                             const TokenResults& results) {
  const std::size_t row_bytes = static_cast<std::size_t>(plan.shape.hidden) * size_of(out.dtype);
  std::byte* to = out.tokens + token * out.token_bytes;
  int next = 0;
  for (int k = 0; k < plan.shape.top_k; ++k, to += row_bytes) {
    if (next < results.count && results.k[next] == k) {
      convert_row(g, {fabric.local(plan.map.result(token, k)), 1.0f, false}, plan.shape.hidden, to, out.dtype);
      ++next;
    } else {
      fill_zero(g, to, row_bytes);
    }
  }
}

// Sums every token of this rank in the fixed order: k ascending (exact) or ranks ascending (by_rank), the shared row
// last.
template <ThreadGroup G, Fabric F>
FERRY_HD bool receive_results(const Plan& plan, F& fabric, const G& g, Epoch epoch, Block block,
                              const RowStarts& starts, const CombineArgs& in, const CombineOut& out) {
  const RoutingEntry* table = table_of(plan, fabric, epoch, plan.rank);
  const int num_tokens = tokens_of(plan, fabric, epoch, plan.rank);
  TokenResults results;
  for (int token = block.index; token < num_tokens; token += block.count) {
    find_results(plan, table + static_cast<std::size_t>(token) * plan.shape.top_k, results);
    if (!await_results(plan, fabric, g, epoch, token, results)) return false;
    if (out.unreduced)
      copy_unreduced(plan, fabric, g, out, token, results);
    else
      sum_token(plan, fabric, g, starts, in, out, token, results);
  }
  return true;
}

}  // namespace ferry
