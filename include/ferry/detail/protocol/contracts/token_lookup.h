// TokenLookup: the questions that a step asks of one token, and where the answers lie. A lookup is a small object that
// a step carries as a parameter (step.h). Each backend has one: cpu::SerialLookup is the readable reference, and
// cuda::WarpLookup answers with a warp. A HandleLookup answers from a handle and reads no table. docs/protocol.md says
// what tests them against each other.
//
//   destinations  the ranks that a token of the caller's goes to, from the caller's ids
//   local_rows    the rows of a token that came, from its source's table and the row starts (I4)
//   results       the slots of a token's results, from the source's own table, in the order of the sum (I9):
//                 k ascending (exact), ranks ascending, or ranks by their last k where `by_last_k` says so
//
// All threads of the group call a lookup. It writes the answer to the caller's scratch and to nothing else. It returns
// when the threads that share the scratch can read the answer.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "ferry/detail/formats/row_sum.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/formats/thread_group.h"
#include "ferry/shape.h"

namespace ferry {

// The local rows of one token, k ascending.
struct LocalRows {
  int count = 0;
  int k[kMaxTopK];
  int local[kMaxTopK];          // local expert
  std::uint32_t row[kMaxTopK];  // row of the output
  float weight[kMaxTopK];       // not written by lookups whose combine reads a handle
};

// The distinct ranks that a token names. They are ascending where they come from a table.
struct NamedRanks {
  int count = 0;
  int rank[kMaxTopK + 1];  // the own rank besides, for a fused shared expert
};

// The slots that a token's sum is made of, in the order of the sum.
struct TokenResults {
  int count = 0;
  int index[kMaxTopK];  // slot, counted from the token's first one; where results are packed, it may be any
  int rank[kMaxTopK];   // who writes it
  int k[kMaxTopK];      // exact only
};

// Room for the answers about one token. The threads of a sync_unit() share it.
struct TokenScratch {
  NamedRanks named;
  LocalRows found;
  TokenResults results;
  SumRow rows[kMaxBias + kMaxTopK + 1];  // of a sum: bias, results, and the row of a fused shared expert
};

template <class G>
concept ThreadGroupOrReference = ThreadGroup<std::remove_cvref_t<G>>;

// The look-ups of a sending step.
template <class L, class G>
concept DestinationLookup = ThreadGroup<G> &&
    requires(const L& lookup, const G& g, const Plan& plan, const DispatchArgs& in, NamedRanks& to) {
  { lookup.destinations(g, plan, in, int{}, to) } -> std::same_as<void>;
};

// The look-ups of receiving steps, in dispatch and in combine. local_rows also returns an L::Found, which an ArrivalLog
// may keep. sync_unit(g): the threads of `g` that share one TokenScratch. kHasHandle: the answers come from a handle,
// and no table is read.
template <class L, class G>
concept ArrivalLookup = ThreadGroup<G> &&
    requires(const L& lookup, const G& g, const Plan& plan, const RowStarts& starts, TokenAt at,
             const RoutingEntry* entries, LocalRows& found, TokenResults& results, NamedRanks& named) {
  { lookup.local_rows(g, plan, starts, at, entries, found) } -> std::same_as<typename L::Found>;
  { lookup.results(g, plan, entries, bool{}, results, named) } -> std::same_as<void>;
  { lookup.sync_unit(g) } -> ThreadGroupOrReference;
  { L::kHasHandle } -> std::convertible_to<bool>;
};

// `Receiver`: the group that receives, if it is of another type than the group that sends.
template <class L, class Sender, class Receiver = Sender>
concept TokenLookup = DestinationLookup<L, Sender> && ArrivalLookup<L, Receiver>;

// What a dispatch keeps of each token that arrived, for its combine.
template <class A, class L, class G>
concept ArrivalLog = ArrivalLookup<L, G> &&
    requires(const A& log, const G& g, const Plan& plan, TokenAt at, const typename L::Found& found) {
  { log.keep(g, plan, at, found) } -> std::same_as<void>;
};

// For backends whose combine reads the tables again.
struct NoLog {
  template <class G, class Found>
  FERRY_HD void keep(const G&, const Plan&, TokenAt, const Found&) const {}
};

}  // namespace ferry
