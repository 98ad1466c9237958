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
}

void CallOrder::begin_dispatch(Call call, const Ticket& ticket) {
  advance(call);
  dispatch_ticket_ = ticket;
}

void CallOrder::begin_combine(Call call, const Ticket& ticket) {
  advance(call);
  combine_ticket_ = ticket;
}

Ticket CallOrder::next_dispatch() const {
  return {.routing = dispatch_ticket_.routing + 1,
          .message = dispatch_ticket_.message + 1,
          .result = combine_ticket_.result};
}

Ticket CallOrder::next_combine() const {
  Ticket ticket = dispatch_ticket_;
  ticket.result = combine_ticket_.result + 1;
  return ticket;
}

}  // namespace ferry
