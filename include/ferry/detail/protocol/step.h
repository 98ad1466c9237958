// Step: the parameters of every step: the plan, the fabric, the threads, the numbers, and the two seams between the
// protocol and a backend. Steps that all backends run are in this folder, each in a file. docs/protocol.md has a table
// of all steps.
#pragma once

#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/detail/protocol/contracts/row_ops.h"
#include "ferry/detail/protocol/contracts/token_lookup.h"
#include "ferry/detail/protocol/contracts/work_share.h"

namespace ferry {

template <Fabric F, ThreadGroup G, class L, class O>
struct Step {
  using Group = G;
  using Lookup = L;
  using Ops = O;

  const Plan& plan;
  F& fabric;
  const G& group;
  Epoch routing;  // number of the routing, whose tables the step reads
  Epoch epoch;    // number of the messages in a dispatch, of the results in a combine
  L lookup{};
  O ops{};
};
// Clang before 17 deduces nothing of an aggregate by itself.
template <Fabric F, ThreadGroup G, class L, class O>
Step(const Plan&, F&, const G&, Epoch, Epoch, L, O) -> Step<F, G, L, O>;

// A step that sends tokens.
template <class S>
concept SendStep =
    DestinationLookup<typename S::Lookup, typename S::Group> && SendOps<typename S::Ops, typename S::Group>;

// A step that receives.
template <class S>
concept ReceiveStep =
    ArrivalLookup<typename S::Lookup, typename S::Group> && RowOps<typename S::Ops, typename S::Group>;

// A receiving step that also makes or reads results.
template <class S>
concept ResultStep = ReceiveStep<S> && ResultOps<typename S::Ops, typename S::Group>;

// The same step with other ops.
template <class S, class O>
FERRY_HD auto with_ops(const S& step, const O& ops) {
  return Step{step.plan, step.fabric, step.group, step.routing, step.epoch, step.lookup, ops};
}

// The same step with another look-up.
template <class S, class L>
auto with_lookup(const S& step, const L& lookup) {
  return Step{step.plan, step.fabric, step.group, step.routing, step.epoch, lookup, step.ops};
}

// The entries of one token, in its source's table; or, where the look-up has a handle, of an own token in that.
template <class S>
FERRY_HD const RoutingEntry* entries_of(const S& step, TokenAt at) {
  if constexpr (S::Lookup::kHasHandle)
    return step.lookup.entries(step.plan, at);
  else
    return entries_of(step.plan, step.fabric, step.routing, at);
}

}  // namespace ferry
