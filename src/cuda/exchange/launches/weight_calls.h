// WeightCalls: weights that travel on their own in a combine: late weights to the rows' ranks ahead of its results
// (I24), and weights of rows to the tokens' homes (I25).
#pragma once

#include "cuda/exchange/launches/combine_basis.h"
#include "cuda/exchange/state/exchange_state.h"
#include "exchange/calls/call_order.h"
#include "ferry/tensor.h"

namespace ferry::cuda {

class WeightCalls {
 public:
  explicit WeightCalls(const ExchangeState& state) : state_(state) {}

  // The weights that the next combine is given. Throws where there are more than any dispatch has.
  void take_given(const ConstTensor& topk_weights);

  // Ahead of everything that sends results:
  void send_home(const CombineBasis& basis, const Ticket& ticket, const CombineArgs& args) const;
  // Makes basis.weighed of the late weights of all ranks.
  void exchange_late(const CombineBasis& basis, const Ticket& ticket, const CombineArgs& args) const;
  // Behind everything that waits for results.
  void sum_home(const CombineBasis& basis, const Ticket& ticket, const CombineOut& sums) const;

 private:
  ReturnedParams returned_params(const CombineBasis& basis, const Ticket& ticket) const;

  const ExchangeState& state_;
  int given_tokens_ = 0;
};

}  // namespace ferry::cuda
