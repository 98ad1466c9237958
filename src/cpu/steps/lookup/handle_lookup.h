// HandleLookup: the questions about a token answered from a handle, for combines and replayed dispatches. It gives the
// answers that SerialLookup gave at the dispatch that left the handle. The caller may change rows, entries and slots
// after check_handle, so each is bounded where it is used (I18).
#pragma once

#include <algorithm>

#include "cpu/steps/lookup/serial_lookup.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cpu {

// The group of a row, and so its local expert.
inline int group_of(const Plan& plan, const RowStarts& starts, std::uint32_t row) {
  const std::uint32_t* end = starts.group + plan.groups();
  return static_cast<int>(std::upper_bound(starts.group, end, row) - starts.group) - 1;
}

struct HandleLookup {
  using Found = SerialLookup::Found;
  static constexpr bool kHasHandle = true;
  const KeptRouting* kept = nullptr;

  template <ThreadGroup G>
  const G& sync_unit(const G& g) const {
    return g;
  }
  const RoutingEntry* entries(const Plan& plan, TokenAt at) const {
    return kept->own + static_cast<std::ptrdiff_t>(at.token) * plan.shape.top_k;
  }

  // A rank that the mask takes out by now gets nothing.
  template <ThreadGroup G>
  void destinations(const G& g, const Plan& plan, const DispatchArgs& in, int token, NamedRanks& to) const {
    if (g.thread() == 0) {
      RoutingEntry own[kMaxTopK];
      copy_entries(plan, entries(plan, {plan.rank, token}), own);
      to.count = 0;
      list_named_ranks(plan, own, to);
      const bool shared = plan.shared_groups != 0 && token >= in.shared_begin && token < in.shared_end;
      const auto drops = [&](int rank) { return plan.is_masked(rank) || (shared && rank == plan.rank); };
      to.count = static_cast<int>(std::remove_if(to.rank, to.rank + to.count, drops) - to.rank);
      if (shared) to.rank[to.count++] = plan.rank;
    }
    g.sync();
  }

  // I22. A token of a rank that the mask takes out by now has no row.
  template <ThreadGroup G>
  Found local_rows(const G& g, const Plan& plan, const RowStarts& starts, TokenAt at, const RoutingEntry*,
                   LocalRows& found) const {
    if (g.thread() == 0) {
      found.count = 0;
      if (!plan.is_masked(at.source)) list_rows(plan, starts, at, found);
    }
    g.sync();
    return {};
  }
  // The rows of a token, also of a rank that is masked by now. By one thread.
  void list_rows(const Plan& plan, const RowStarts& starts, TokenAt at, LocalRows& found) const {
    const HandleRow* rows = kept->rows + kept->index_of(plan, at) * static_cast<std::size_t>(plan.shape.top_k);
    int count = 0;
    for (int k = 0; k < plan.shape.top_k; ++k) {
      const HandleRow row = rows[k];
      if (row.row >= starts.group[plan.groups()]) continue;
      found.k[count] = k;
      found.local[count] = group_of(plan, starts, row.row) - plan.shared_groups;
      found.row[count] = row.row;
      found.weight[count] = row.weight;
      ++count;
    }
    found.count = count;
  }

  // I9. Slots are numbered by the mask of the handle's dispatch, not by the mask of now.
  template <ThreadGroup G>
  void results(const G& g, const Plan& plan, const RoutingEntry* entries, bool by_last_k, TokenResults& results,
               NamedRanks& named) const {
    RoutingEntry own[kMaxTopK];
    copy_entries(plan, entries, own);
    SerialLookup{}.results(g, plan, own, by_last_k, results, named);
  }
  int slot(const Plan& plan, TokenAt at, const RoutingEntry*) const {
    return std::min<int>(kept->slots[kept->index_of(plan, at)], static_cast<int>(plan.map.results_per_token()) - 1);
  }

 private:
  static void copy_entries(const Plan& plan, const RoutingEntry* from, RoutingEntry* to) {
    for (int k = 0; k < plan.shape.top_k; ++k) {
      to[k] = from[k];
      if (plan.code.expert(to[k].code) >= plan.shape.experts) to[k].code = 0;
    }
  }
};
static_assert(TokenLookup<HandleLookup, SerialGroup>);

}  // namespace ferry::cpu
