// CudaSteps: what weights enqueue besides the kernels that carry tokens.
#include <algorithm>

#include "cuda/device/refuse.h"
#include "cuda/exchange/cuda_steps.h"
#include "ferry/detail/protocol/handle.h"

namespace ferry::cuda {

// The same as float32. There is one place for them: a kernel that reads them follows at once.
Weights CudaSteps::widened(const Weights& weights, int num_tokens) const {
  if (weights.data == nullptr || weights.dtype == DType::f32 || num_tokens <= 0) return weights;
  launch_widen_weights({weights, num_tokens * plan_.shape.top_k, wide_weights_},
                       now().kernel_plan.most_small_blocks(max_blocks_), stream_);
  Weights wide = weights;
  wide.data = wide_weights_;
  wide.dtype = DType::f32;
  return wide;
}

// Where a handle lies on the device, its number of tokens is not known here yet. A kernel stores as many weights as
// there are, so they must fit.
void CudaSteps::check_combine_input(const CheckContext&, const Ticket&, const CombineInput& in,
                                    const CombineArgs& args) {
  checks_.check_combine_input(in, args);
  check_types_in(args);
  const std::int64_t given = in.topk_weights ? in.topk_weights.shape[0] : 0;
  if (given > plan_.shape.max_tokens)
    refuse(ErrorKind::invalid_argument, rank_,
           "topk_weights has {} rows; it must have those of the handle's dispatch, at most max_tokens, {}", given,
           plan_.shape.max_tokens);
  given_tokens_ = static_cast<int>(given);
}

// I24: the rows that the combine goes by, with the late weights of all ranks.
void CudaSteps::weigh(const Ticket& ticket, const CombineArgs& args) const {
  if (!plan_.map.has_late_weights()) return;
  LateParams params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = ticket.handle != nullptr ? masks_.newest() : open_mask_;
  params.weights = args.weights;
  params.num_tokens = ticket.num_tokens < 0 ? given_tokens_ : ticket.num_tokens;
  params.is_extra = is_extra_;
  params.by_source = ticket.rows.order == RowOrder::by_source;
  if (ticket.handle != nullptr) params.header = kept_routing_at(plan_, ticket.handle).header;
  params.arrived = arrived_of(ticket);
  params.rows = combined_rows_;
  params.bytes = stats_.bytes;
  const int most_blocks = now().kernel_plan.most_small_blocks(max_blocks_);
  now().kernels.small.exchange_late_weights(params, most_blocks, stream_);
  launch_with_late_weights(params, most_blocks, stream_);
}

ReturnedParams CudaSteps::returned_params(const Ticket& ticket) const {
  ReturnedParams params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = ticket.handle != nullptr ? masks_.newest() : open_mask_;
  params.arrived = arrived_of(ticket);
  params.own = own_table_of(ticket);
  params.num_tokens = std::max(0, ticket.num_tokens);
  params.bytes = stats_.bytes;
  return params;
}

// I25: ahead of everything that sends results.
void CudaSteps::return_weights(const Ticket& ticket, const CombineArgs& args) const {
  if (!plan_.map.returns_weights()) return;
  ReturnedParams params = returned_params(ticket);
  params.row_weights = args.row_weights;
  params.num_row_weights = args.num_row_weights;
  params.has_row_weights_of_k = args.has_row_weights_of_k;
  params.may_lack_rows = may_lack_rows(ticket);
  params.kept = kept_rows_of(ticket);
  now().kernels.small.return_weights(params, now().kernel_plan.most_small_blocks(max_blocks_), stream_);
}

void CudaSteps::sum_returned(const Ticket& ticket, const CombineOut& sums) const {
  if (sums.weights == nullptr || ticket.num_tokens == 0) return;
  ReturnedParams params = returned_params(ticket);
  params.sums = sums.weights;
  launch_sum_returned(params, now().kernel_plan.most_small_blocks(max_blocks_), stream_);
}

}  // namespace ferry::cuda
