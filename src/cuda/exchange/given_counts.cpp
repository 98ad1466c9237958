// CudaSteps: the small kernels of a dispatch by counts.
#include "cuda/exchange/cuda_steps.h"
#include "ferry/detail/protocol/handle.h"

namespace ferry::cuda {
namespace {

// Outputs that the host would refuse if it could read a handle of a dispatch by counts (check_counts_output).
bool tells_of_ids(const RowsOut& out) {
  return out.order == RowOrder::by_source &&
         (out.counts != nullptr || out.row_topk_ids != nullptr || out.row_topk_weights != nullptr ||
          out.source_starts != nullptr || out.messages != nullptr || out.cumulative_counts != nullptr);
}

}  // namespace

// `routed` gets the ids that the kernel makes.
void CudaSteps::give_counts(const DispatchArgs& args, DispatchArgs& routed) const {
  GiveCountsParams params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = masks_.newest();
  params.counts = args.expert_counts;
  params.in_rank = args.in_rank;
  params.num_tokens = args.num_tokens;
  params.ids = destination_ids_;
  params.bytes = stats_.bytes;
  if (args.in_rank != nullptr) routed.ids = {destination_ids_, false};
  now().kernels.small.give_counts(params, now().kernel_plan.most_small_blocks(max_blocks_), stream_);
}

// With a handle only from the first one on that a dispatch by counts has left (LeftHandles).
void CudaSteps::take_counts(const Ticket& ticket, const RowsOut& out) const {
  if (ticket.handle != nullptr && !tells_of_ids(out)) return;
  TakeCountsParams params;
  params.plan = plan_;
  params.plan.masked = open_mask_;
  params.state = links_.state;
  params.heap = links_.own;
  params.record = links_.record;
  params.counts = out.counts;
  if (ticket.handle != nullptr) params.replayed = kept_routing_at(plan_, ticket.handle).header;
  launch_take_counts(params, stream_);
}

}  // namespace ferry::cuda
