// SerialLookup: the questions about a token answered by the first thread of the group, one entry after the other. It is
// the reference for what GPUs do with a warp (ferry/detail/cuda/team/warp_lookup.cuh).
#pragma once

#include "ferry/detail/protocol/contracts/token_lookup.h"

namespace ferry::cpu {

// I9: the ranks that a token names, from its source's table, so that source and expert rank see the same. By one
// thread.
inline void list_named_ranks(const Plan& plan, const RoutingEntry* entries, NamedRanks& named) {
  named.count = 0;
  for (int k = 0; k < plan.shape.top_k; ++k) {
    const int expert = plan.code.expert(entries[k].code);
    if (expert < 0) continue;
    const int owner = plan.owner_of(expert);
    int at = named.count;
    while (at > 0 && named.rank[at - 1] > owner) --at;
    if (at > 0 && named.rank[at - 1] == owner) continue;
    for (int move = named.count; move > at; --move) named.rank[move] = named.rank[move - 1];
    named.rank[at] = owner;
    ++named.count;
  }
}

// I9: the slot of this rank's partial sum, from the source's table: how many smaller ranks the token names.
inline int partial_index(const Plan& plan, const RoutingEntry* entries) {
  NamedRanks named;
  list_named_ranks(plan, entries, named);
  int index = 0;
  while (index < named.count && named.rank[index] < plan.rank) ++index;
  return index;
}

// The results of `named` in the order of the last k that names each rank. By one thread.
inline void order_by_last_k(const Plan& plan, const RoutingEntry* entries, const NamedRanks& named,
                            TokenResults& results) {
  int at = named.count;  // filled from its end
  for (int k = plan.shape.top_k - 1; k >= 0 && at > 0; --k) {
    const int expert = plan.code.expert(entries[k].code);
    if (expert < 0) continue;
    const int owner = plan.owner_of(expert);
    bool seen = false;
    for (int i = at; i < named.count; ++i) seen = seen || results.rank[i] == owner;
    if (seen) continue;
    --at;
    results.rank[at] = owner;
    for (int j = 0; j < named.count; ++j)
      if (named.rank[j] == owner) results.index[at] = j;
  }
}

struct SerialLookup {
  struct Found {};  // combine asks the tables again
  static constexpr bool kHasHandle = false;

  template <ThreadGroup G>
  const G& sync_unit(const G& g) const {
    return g;
  }

  // The sending workers do not wait for the table, so the ranks come from the caller's ids (I3). A token of the fused
  // shared expert goes to the own rank, too.
  template <ThreadGroup G>
  void destinations(const G& g, const Plan& plan, const DispatchArgs& in, int token, NamedRanks& to) const {
    if (g.thread() == 0) {
      int count = 0;
      const bool shared = plan.shared_groups != 0 && token >= in.shared_begin && token < in.shared_end;
      if (shared) to.rank[count++] = plan.rank;
      for (int k = 0; k < plan.shape.top_k; ++k) {
        const int expert = routed_expert(plan, in.ids.at(static_cast<std::int64_t>(token) * plan.shape.top_k + k));
        if (expert < 0) continue;
        const int owner = plan.owner_of(expert);
        bool seen = false;
        for (int i = 0; i < count; ++i) seen = seen || to.rank[i] == owner;
        if (!seen) to.rank[count++] = owner;
      }
      to.count = count;
    }
    g.sync();
  }

  // I4
  template <ThreadGroup G>
  Found local_rows(const G& g, const Plan& plan, const RowStarts& starts, TokenAt at, const RoutingEntry* entries,
                   LocalRows& found) const {
    if (g.thread() == 0) {
      const ExpertRange mine = plan.experts_of(plan.rank);
      int count = 0;
      for (int k = 0; k < plan.shape.top_k; ++k) {
        const int expert = plan.code.expert(entries[k].code);
        if (!mine.contains(expert)) continue;
        const int local = expert - mine.first;
        found.k[count] = k;
        found.local[count] = local;
        found.row[count] = row_of(plan, starts, at.source, local, plan.code.position_in_expert(entries[k].code));
        found.weight[count] = entries[k].weight;
        ++count;
      }
      found.count = count;
    }
    g.sync();
    return {};
  }

  // I9. `named` is room for the ranks. The order of the sum changes no slot.
  template <ThreadGroup G>
  void results(const G& g, const Plan& plan, const RoutingEntry* entries, bool by_last_k, TokenResults& results,
               NamedRanks& named) const {
    if (g.thread() == 0) {
      int count = 0;
      if (!plan.exact) list_named_ranks(plan, entries, named);
      for (int j = 0; !plan.exact && j < named.count; ++j, ++count) {
        results.index[count] = j;
        results.rank[count] = named.rank[j];
      }
      if (!plan.exact && by_last_k) order_by_last_k(plan, entries, named, results);
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

  // I9: by_rank, the slot of this rank's result.
  int slot(const Plan& plan, TokenAt, const RoutingEntry* entries) const { return partial_index(plan, entries); }
};
static_assert(TokenLookup<SerialLookup, SerialGroup>);
static_assert(ArrivalLog<NoLog, SerialLookup, SerialGroup>);

}  // namespace ferry::cpu
