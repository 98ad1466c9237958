// CudaSteps: what weights enqueue besides the kernels that carry tokens.
#include "cuda/exchange/cuda_steps.h"
#include "ferry/detail/protocol/handle.h"

namespace ferry::cuda {

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
  launch_return_weights(params, kernel_plan_.most_small_blocks(max_blocks_), stream_);
}

void CudaSteps::sum_returned(const Ticket& ticket, const CombineOut& sums) const {
  if (sums.weights == nullptr || ticket.num_tokens == 0) return;
  ReturnedParams params = returned_params(ticket);
  params.sums = sums.weights;
  launch_sum_returned(params, kernel_plan_.most_small_blocks(max_blocks_), stream_);
}

}  // namespace ferry::cuda
