// PackedResults: where the slots of results lie when some rank is reached by puts only. A source deals its slots out
// rank by rank, and to each rank token by token, in the order in which that rank sends. So the results of a rank lie
// together at the source and in the rank's send buffer, and many travel as one put. In [token][j or k] few would have a
// neighbour.
//
// by_rank, 2 ranks. Of rank 0's tokens, 0 and 2 go to both ranks, 1 to rank 1 only. Its slots, as PackedSlots has them:
//
//   slot         0  1 | 2  3  4    begin      0, 2        at rank 0, by expert rank
//   from rank    0  0 | 1  1  1    begin_at   0: 2        at rank 1, whose results begin there at rank 0
//   of token     0  2 | 0  1  2    before     0: 0, 1, 2  at rank 1, for tokens 0, 1, 2 of rank 0
//   of_result    0  1 | 0  1  2    slot = begin + of_result at the source = begin_at + before at the sender
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cpu/steps/lookup/handle_lookup.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

class PackedResults {
 public:
  explicit PackedResults(const Plan& plan)
      : begin_(static_cast<std::size_t>(plan.shape.ranks)),
        of_result_(static_cast<std::size_t>(plan.shape.max_tokens) * plan.map.results_per_token()),
        begin_at_(static_cast<std::size_t>(plan.shape.ranks)),
        before_(static_cast<std::size_t>(plan.shape.ranks) * static_cast<std::size_t>(plan.shape.max_tokens)),
        last_named_(static_cast<std::size_t>(plan.shape.ranks)) {}

  // Good until the next number_slots().
  PackedSlots slots() const { return {begin_.data(), of_result_.data(), begin_at_.data(), before_.data()}; }

  // I9: from the tables of a round, in which source and expert rank read the same. Relies on I2.
  template <Fabric F>
  void number_slots(const Plan& plan, const F& fabric, Epoch epoch) {
    number_own_results(plan, tokens_of(plan, fabric, epoch, plan.rank), SerialLookup{}, [&](int token) {
      return entries_of(plan, fabric, epoch, {plan.rank, token});
    });
    for (int source = 0; source < plan.shape.ranks; ++source) number_results_at(plan, fabric, epoch, source);
  }

  // The same from a handle.
  void number_slots(const Plan& plan, const HandleLookup& lookup, const RowStarts& starts,
                    const ResultsBefore* results_before) {
    number_own_results(plan, static_cast<int>(starts.tokens[plan.rank]), lookup, [&](int token) {
      return lookup.entries(plan, {plan.rank, token});
    });
    LocalRows found;
    for (int source = 0; source < plan.shape.ranks; ++source) {
      std::uint32_t* before = before_.data() + static_cast<std::size_t>(source) * plan.shape.max_tokens;
      std::uint32_t mine = 0;
      for (int token = 0; token < static_cast<int>(starts.tokens[source]); ++token) {
        before[token] = mine;
        lookup.list_rows(plan, starts, {source, token}, found);
        mine += plan.exact ? static_cast<std::uint32_t>(found.count) : found.count != 0 ? 1u : 0u;
      }
      begin_at_[static_cast<std::size_t>(source)] =
          plan.exact ? results_before[source].exact : results_before[source].by_rank;
    }
  }

 private:
  template <class Lookup, class EntriesOf>
  void number_own_results(const Plan& plan, int tokens, const Lookup& lookup, const EntriesOf& entries_of_token) {
    std::fill(begin_.begin(), begin_.end(), 0);  // first how many each rank sends
    for (int token = 0; token < tokens; ++token) {
      lookup.results(SerialGroup{}, plan, entries_of_token(token), false, results_, named_);
      std::uint32_t* of_result = of_result_.data() + static_cast<std::size_t>(token) * plan.map.results_per_token();
      for (int i = 0; i < results_.count; ++i)
        of_result[results_.index[i]] = begin_[static_cast<std::size_t>(results_.rank[i])]++;
    }
    std::uint32_t slot = 0;
    for (std::uint32_t& begin : begin_) slot += std::exchange(begin, slot);
  }

  // Counts what results() finds, but for every token of all ranks: hence without unpredictable branches.
  template <Fabric F>
  void number_results_at(const Plan& plan, const F& fabric, Epoch epoch, int source) {
    const RoutingEntry* entry = table_of(plan, fabric, epoch, source);
    const int tokens = tokens_of(plan, fabric, epoch, source);
    std::uint32_t* before = before_.data() + static_cast<std::size_t>(source) * plan.shape.max_tokens;
    std::uint32_t results_before = 0;
    std::uint32_t mine = 0;
    for (int token = 0; token < tokens; ++token) {
      before[token] = mine;
      ++tokens_seen_;
      for (int k = 0; k < plan.shape.top_k; ++k, ++entry) {
        const int expert = plan.code.expert(entry->code);
        if (expert < 0) continue;
        const int owner = plan.owner_of(expert);
        const bool is_named_anew =
            std::exchange(last_named_[static_cast<std::size_t>(owner)], tokens_seen_) != tokens_seen_;
        const bool is_result = is_named_anew | plan.exact;
        results_before += static_cast<std::uint32_t>(is_result & (owner < plan.rank));
        mine += static_cast<std::uint32_t>(is_result & (owner == plan.rank));
      }
    }
    begin_at_[static_cast<std::size_t>(source)] = results_before;
  }

  std::vector<std::uint32_t> begin_;  // as in PackedSlots
  std::vector<std::uint32_t> of_result_;
  std::vector<std::uint32_t> begin_at_;
  std::vector<std::uint32_t> before_;
  std::vector<std::uint64_t> last_named_;  // [ranks]: by the last of tokens_seen_ that named it
  std::uint64_t tokens_seen_ = 0;
  TokenResults results_;
  NamedRanks named_;
};

}  // namespace ferry::cpu
