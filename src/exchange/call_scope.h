// CallScope: around all that a call of an exchange does. The steps are entered, and a Trace that records learns of the
// call.
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "exchange/calls/call_order.h"
#include "exchange/exchange_steps.h"
#include "exchange/log/trace_log.h"

namespace ferry {

class CallScope {
 public:
  CallScope(ExchangeSteps& steps, const TracedExchange& exchange, const char* call)
      : steps_(steps), exchange_(exchange), log_(recording_log()) {
    steps_.enter();
    if (log_ == nullptr) return;
    exceptions_ = std::uncaught_exceptions();
    try {
      steps_.trace_to(&trace_.emplace(call, exchange.ranks));
    } catch (...) {
      steps_.leave();
      throw;
    }
  }
  ~CallScope() {
    if (trace_) end_trace();
    steps_.leave();
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  // Which dispatch or combine the call is of.
  void note(const Ticket& ticket, Operation operation) {
    if (!trace_) return;
    const bool is_kept = operation == Operation::combine && ticket.handle != nullptr;
    if (!is_kept) trace_->call().dispatch = ticket.message + 1 - kFirstEpoch;
    if (operation == Operation::combine) trace_->call().combine = ticket.result + 1 - kFirstEpoch;
    trace_->call().tokens = ticket.num_tokens;
  }

 private:
  void end_trace() noexcept {
    steps_.trace_to(nullptr);
    try {
      log_->add(exchange_, trace_->end(std::uncaught_exceptions() > exceptions_), trace_->kernels());
    } catch (...) {
      // No memory for it: the call goes on without a trace.
    }
  }

  ExchangeSteps& steps_;
  const TracedExchange& exchange_;
  const std::shared_ptr<TraceLog> log_;
  std::optional<CallTrace> trace_;
  int exceptions_ = 0;  // in flight when the call began
};

}  // namespace ferry
