#include "exchange/call_order.h"

#include <fmt/core.h>

#include "ferry/error.h"

namespace ferry {
namespace {

const CallRule& rule_of(Call call) { return kCallRules[static_cast<std::size_t>(call)]; }

}  // namespace

void CallOrder::require_allowed(int rank, Call call) const {
  const CallRule& rule = rule_of(call);
  if (!rule.dispatch.has(dispatch_) || !rule.combine.has(combine_))
    throw Error(ErrorKind::out_of_order, fmt::format("rank {}: {}: {}", rank, rule.name, rule.otherwise));
}

void CallOrder::advance(Call call) {
  const CallRule& rule = rule_of(call);
  dispatch_ = rule.dispatch_after;
  combine_ = rule.combine_after;
  if (call == Call::combine_async || call == Call::combine) combine_ticket_ = dispatch_ticket_;
}

void CallOrder::begin_dispatch(Call call, const Ticket& ticket) {
  advance(call);
  dispatch_ticket_ = ticket;
}

}  // namespace ferry
