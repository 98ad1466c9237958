#include "exchange/calls/call_order.h"

#include <fmt/core.h>

#include "ferry/detail/layout/call_word.h"
#include "ferry/error.h"

namespace ferry {
namespace {

const CallRule& rule_of(Call call) { return kCallRules[static_cast<std::size_t>(call)]; }

// Null for the calls of kCallRules.
const char* name_of_kept(Call call) {
  switch (call) {
    case Call::kept_combine_async:
      return "combine_async";
    case Call::kept_combine_wait:
      return "combine_wait";
    case Call::kept_combine:
      return "combine";
    default:
      return nullptr;
  }
}

[[noreturn]] void refuse_call(int rank, const char* name, const char* why) {
  throw Error(ErrorKind::out_of_order, fmt::format("rank {}: {}: {}", rank, name, why));
}

}  // namespace

void CallOrder::require_memory(int rank, const char* call) const {
  if (without_memory_)
    refuse_call(rank, call, "another exchange has the memory that this one shares; call take_memory() first");
  if (released_) refuse_call(rank, call, "release() has given the memory of this exchange back; call restore() first");
}

void CallOrder::require_may_release(int rank, const char* call) const {
  require_memory(rank, call);
  if (dispatch_ == Progress::half) refuse_call(rank, call, kHalfDispatched);
  if (combine_ == Progress::half || kept_ == Progress::half) refuse_call(rank, call, kHalfCombined);
}

void CallOrder::require_may_restore(int rank) const {
  if (without_memory_) require_memory(rank, "restore");
  if (!released_) refuse_call(rank, "restore", "the memory of this exchange is there; it must follow release()");
}

void CallOrder::require_allowed(int rank, Call call) const {
  const auto refuse = [rank](const char* name, const char* why) { refuse_call(rank, name, why); };
  const char* kept_name = name_of_kept(call);
  require_memory(rank, kept_name != nullptr ? kept_name : rule_of(call).name);
  if (const char* name = kept_name) {
    const bool waits = call == Call::kept_combine_wait;
    if (combine_ == Progress::half || (kept_ == Progress::half) != waits) refuse(name, kHalfCombined);
    return;
  }
  const CallRule& rule = rule_of(call);
  if (!rule.kept.has(kept_)) refuse(rule.name, kHalfCombined);
  if (!rule.dispatch.has(dispatch_) || !rule.combine.has(combine_)) refuse(rule.name, rule.otherwise);
  const bool combines = call == Call::combine_async || call == Call::combine;
  if (combines && dispatch_ticket_.handle != nullptr)
    refuse(rule.name, "the newest dispatch was given a handle; give it to this call, too");
}

void CallOrder::advance(Call call) {
  if (name_of_kept(call) != nullptr) {
    kept_ = call == Call::kept_combine_async ? Progress::half : Progress::whole;
    return;
  }
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

// I13
Ticket CallOrder::next_dispatch(bool replays) const {
  Ticket ticket;
  ticket.routing = dispatch_ticket_.routing + (replays ? 0 : 1);
  ticket.message = dispatch_ticket_.message + 1;
  ticket.result = combine_ticket_.result;
  ticket.mark = routing_mark(ticket.routing, false);
  return ticket;
}

Ticket CallOrder::next_combine() const {
  Ticket ticket = dispatch_ticket_;
  ticket.result = combine_ticket_.result + 1;
  return ticket;
}

Ticket CallOrder::next_kept_combine() const {
  Ticket ticket;
  ticket.routing = dispatch_ticket_.routing;
  ticket.message = dispatch_ticket_.message;
  ticket.result = combine_ticket_.result + 1;
  return ticket;
}

void CallOrder::give_up_dispatch(bool half_combine) {
  dispatch_ = combine_ = Progress::none;
  if (half_combine) kept_ = Progress::none;
}

LastSent CallOrder::last_sent() const {
  return {dispatch_ticket_.routing, dispatch_ticket_.message, combine_ticket_.result,
          combine_ != Progress::half && kept_ != Progress::half};
}

}  // namespace ferry
