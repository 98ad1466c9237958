#include "cuda/exchange/launches/weight_calls.h"

#include <algorithm>

#include "cuda/device/refuse.h"

namespace ferry::cuda {

// Where a handle lies on the device, its number of tokens is not known here yet. A kernel stores as many weights as
// there are, so they must fit.
void WeightCalls::take_given(const ConstTensor& topk_weights) {
  const int max_tokens = state_.plan().shape.max_tokens;
  const std::int64_t given = topk_weights ? topk_weights.shape[0] : 0;
  if (given > max_tokens)
    refuse(ErrorKind::invalid_argument, state_.rank(),
           "topk_weights has {} rows; it must have those of the handle's dispatch, at most max_tokens, {}", given,
           max_tokens);
  given_tokens_ = static_cast<int>(given);
}

void WeightCalls::exchange_late(const CombineBasis& basis, const Ticket& ticket, const CombineArgs& args) const {
  if (!state_.plan().map.has_late_weights()) return;
  auto params = state_.params_of<LateParams>(basis.masked);
  params.weights = args.weights;
  params.num_tokens = ticket.num_tokens < 0 ? given_tokens_ : ticket.num_tokens;
  params.is_extra = basis.is_extra;
  params.by_source = ticket.rows.order == RowOrder::by_source;
  params.header = basis.header;
  params.arrived = basis.arrived;
  params.rows = basis.weighed.rows;
  params.bytes = state_.counters().bytes;
  const int most_blocks = state_.most_small_blocks();
  state_.kernels().small.exchange_late_weights(params, most_blocks, state_.stream());
  launch_with_late_weights(params, most_blocks, state_.stream());
}

ReturnedParams WeightCalls::returned_params(const CombineBasis& basis, const Ticket& ticket) const {
  auto params = state_.params_of<ReturnedParams>(basis.masked);
  params.plan.exact = basis.exact;
  params.arrived = basis.arrived;
  params.own = basis.own;
  params.num_tokens = std::max(0, ticket.num_tokens);
  params.bytes = state_.counters().bytes;
  return params;
}

void WeightCalls::send_home(const CombineBasis& basis, const Ticket& ticket, const CombineArgs& args) const {
  if (!state_.plan().map.returns_weights()) return;
  ReturnedParams params = returned_params(basis, ticket);
  params.row_weights = args.row_weights;
  params.num_row_weights = args.num_row_weights;
  params.has_row_weights_of_k = args.has_row_weights_of_k;
  params.may_lack_rows = basis.may_lack_rows;
  params.kept = basis.handle_rows;
  state_.kernels().small.return_weights(params, state_.most_small_blocks(), state_.stream());
}

void WeightCalls::sum_home(const CombineBasis& basis, const Ticket& ticket, const CombineOut& sums) const {
  if (sums.weights == nullptr || ticket.num_tokens == 0) return;
  ReturnedParams params = returned_params(basis, ticket);
  params.sums = sums.weights;
  launch_sum_returned(params, state_.most_small_blocks(), state_.stream());
}

}  // namespace ferry::cuda
