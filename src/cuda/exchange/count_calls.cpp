// CudaSteps: the extra kernels of a dispatch that has too many tokens, or whose host asks what comes.
#include "cuda/device/refuse.h"
#include "cuda/exchange/cuda_steps.h"
#include "exchange/sizes/row_counts.h"

namespace ferry::cuda {

// I2: to the others it is a dispatch without tokens, but for the header.
void CudaSteps::send_excess(const Ticket& ticket) {
  streams_.follow(stream_);
  ExcessParams params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = masks_.newest();
  params.num_tokens = static_cast<std::uint32_t>(ticket.num_tokens);
  now().kernels.small.tell_excess(params, stream_);
  Ticket none = ticket;
  none.num_tokens = 0;
  const DispatchArgs nothing;
  run_dispatch(none, masks_.newest(), &nothing, nullptr);
}

// The dispatch has ended when it is refused: the kernel has seen that every rank has begun it (I1).
std::int64_t CudaSteps::await_counts(const Ticket& ticket) {
  if (capture_of(stream_) != kNoCapture || order_.dispatch_was_captured())
    refuse(ErrorKind::out_of_order, rank_,
           "wait_for_counts: {} captured, and the host waits for what only a run of the graph finds out. Give "
           "dispatch_wait outputs for the worst case (RowLayout::least_rows)",
           capture_of(stream_) != kNoCapture ? "the stream is being" : "the dispatch was");
  streams_.follow(stream_);
  CountParams params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = open_mask_;
  params.order = ticket.rows.order;
  params.shared_rows = ticket.shared.end - ticket.shared.begin;
  params.by_counts = ticket.by_counts && ticket.handle == nullptr;
  if (ticket.handle != nullptr) params.replayed = kept_routing_at(plan_, ticket.handle).header;
  counts_.ask(params);
  now().kernels.small.count(params, stream_);
  if (!counts_.await(record_, stream_)) {
    poll_calls();
    refuse(ErrorKind::system, rank_, "wait_for_counts: the device ended its work without an answer");
  }
  if (const ExcessTokens excess = counts_.excess(); excess.rank >= 0) {
    order_.end_dispatch();
    throw DispatchRefused::too_many_tokens(rank_, excess.rank, excess.tokens, plan_.shape.max_tokens);
  }
  if (const int other = counts_.other_input(); other >= 0 && ticket.handle == nullptr) {
    order_.end_dispatch();
    throw DispatchRefused::counts_differ(rank_, ticket.by_counts, other);
  }
  return row_counts(ticket).rows;
}

// Padded groups lie at their stride, whatever came.
RowCounts CudaSteps::row_counts(const Ticket& ticket) const {
  RowCounts counts = counts_of(plan_, {ticket.rows.order, counts_.starts(plan_), counts_.source_offsets(plan_)});
  if (ticket.rows.order == RowOrder::padded) counts.rows = plan_.groups() * ticket.rows.expert_stride;
  if (!counts_.is_by_counts()) return counts;
  counts.by_expert.clear();  // of a handle: no table says which experts
  if (ticket.handle == nullptr) counts.by_expert = counts_.given_counts(plan_);
  return counts;
}

}  // namespace ferry::cuda
