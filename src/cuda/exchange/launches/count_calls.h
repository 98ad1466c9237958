// CountCalls: counts that the caller of a dispatch gives in place of ids, and counts that its host asks for, among them
// tokens that are too many.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/exchange/order/count_box.h"
#include "cuda/exchange/state/exchange_state.h"
#include "exchange/calls/call_order.h"
#include "exchange/exchange_steps.h"

namespace ferry::cuda {

class CountCalls {
 public:
  explicit CountCalls(const ExchangeState& state);
  void free_with(DeferredFree& deferred) { box_.free_with(deferred); }

  // Ahead of a dispatch by counts. `args` gets the ids that the kernel makes.
  void give(DispatchArgs& args) const;
  // Behind a dispatch. Given counts come last: they stand in place of counts of rows.
  void take(const Ticket& ticket, const RowsOut& out) const;

  bool has_excess(const Ticket& ticket) const { return ticket.num_tokens > state_.plan().shape.max_tokens; }
  // I2: ahead of a dispatch of too many tokens, which is sent without tokens. Only its header tells the others.
  void tell_excess(const Ticket& ticket) const;

  // Waits for what comes in the dispatch. False: a kernel gave up, or the device ended its work without an answer.
  bool ask(const Ticket& ticket);
  // From the answer. The kernel has seen that every rank has begun the dispatch (I1), so the dispatch has ended when it
  // is refused.
  std::optional<DispatchRefused> refusal(const Ticket& ticket) const;
  RowCounts row_counts(const Ticket& ticket) const;

  // Of a routing that this rank's kernels have refused, and for which the host did not ask.
  DispatchRefused refusal_of(Epoch routing) const;

 private:
  const ExchangeState& state_;
  CountBox box_;
  std::int32_t* ids_;  // [max_tokens, top_k]: of the newest dispatch by counts
};

}  // namespace ferry::cuda
