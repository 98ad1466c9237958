// CudaSteps: what calls with handles enqueue besides the kernels that carry tokens.
#include "cuda/exchange/cuda_steps.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/protocol/row_room.h"

namespace ferry::cuda {

HandleCallParams CudaSteps::handle_call(Operation operation, const Ticket& ticket) const {
  HandleCallParams params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = masks_.newest();
  params.handle = ticket.handle;
  params.wanted = header_;
  params.wanted.num_tokens = ticket.num_tokens;
  params.wanted.order = static_cast<std::int32_t>(ticket.rows.order);
  params.operation = operation;
  params.may_lack_rows = may_lack_rows(ticket);
  params.may_be_by_counts = device_.left_handles->by_counts;
  return params;
}

void CudaSteps::launch_handle_call(const HandleCallParams& params) {
  streams_.follow(stream_);
  now().kernels.small.begin_handle(params, stream_);
}

// A dispatch with a handle routes the handle's ids again: that gives the same rows. Weights travel only where rows may
// say them, or a rank may give new ones.
DispatchArgs CudaSteps::begin_dispatch(const Ticket& ticket, const DispatchArgs& args) {
  DispatchArgs routed = args;
  streams_.follow(stream_);
  routed.weights = widened(args.weights, args.num_tokens);
  if (args.expert_counts != nullptr) give_counts(args, routed);
  if (ticket.handle == nullptr) return routed;
  launch_handle_call(handle_call(Operation::dispatch, ticket));
  const KeptRouting kept = kept_routing_at(plan_, ticket.handle);
  routed.ids = {kept.ids, false};
  const bool travel = plan_.map.has_token_lists() || plan_.map.has_late_weights();
  if (travel && !args.weights.are_given()) routed.weights = {kept.weights, nullptr, nullptr, plan_.shape.top_k};
  return routed;
}

// From the first handle on whose dispatch may have had no room for some rows, a replay that copies its handle says how
// much room it had, and a combine with a handle heeds that. Until then neither launches a kernel for it.
void CudaSteps::note_room(const RowsOut& out) const {
  if (!device_.left_handles->may_lack_rows) return;
  launch_note_room({links_.state, kept_routing_at(plan_, out.handle).header, room_of(out).rows + 1}, stream_);
}

void CudaSteps::keep_routing(const Ticket& ticket, const RowsOut& out) const {
  if (out.handle == nullptr) return;
  if (out.may_overflow) device_.left_handles->may_lack_rows = true;
  if (ticket.by_counts) device_.left_handles->by_counts = true;
  if (ticket.handle != nullptr && !plan_.map.has_late_weights()) {  // else the weights may be new ones
    if (out.handle != ticket.handle)
      cuda_check(cudaMemcpyAsync(out.handle, ticket.handle, HandleSizes(plan_).bytes(), cudaMemcpyDefault, stream_),
                 "cudaMemcpyAsync");
    return note_room(out);
  }
  KeepParams params;
  params.plan = plan_;
  params.plan.masked = open_mask_;
  params.state = links_.state;
  params.heap = links_.own;
  params.from = arrived_;
  params.header = header_;
  params.header.num_tokens = ticket.num_tokens;
  params.header.order = static_cast<std::int32_t>(ticket.rows.order);
  params.header.shared_begin = ticket.shared.begin;
  params.header.shared_end = ticket.shared.end;
  params.header.by_counts = ticket.by_counts ? 1 : 0;
  if (ticket.handle != nullptr) params.replayed = kept_routing_at(plan_, ticket.handle).header;
  params.header.has_weights = ticket.has_weights ? 1 : 0;
  params.header.row_room = room_of(out).rows + 1;  // RowRoom::kAll becomes 0
  params.to = out.handle;
  launch_keep_routing(params, stream_);
}

// Only a kernel sees of which order the rows of a handle are, so it compares them with the weights.
void CudaSteps::begin_combine(const Ticket& ticket, const CombineArgs& args) {
  streams_.follow(stream_);
  const CombineOrder::Start start = order_.next_combine(capture_of(stream_), ticket.handle != nullptr);
  is_extra_ = start.number != CombineNumber::of_dispatch;
  if (!is_extra_) return;
  HandleCallParams params = handle_call(Operation::combine, ticket);
  params.number = start.number;
  params.waits = start.waits;
  params.wants_order = args.row_weights != nullptr;
  params.gives_weights = !plan_.exact && args.weights.are_given();
  if (params.wants_order)
    params.wanted.order =
        static_cast<std::int32_t>(args.has_row_weights_of_k ? RowOrder::by_source : RowOrder::by_expert);
  launch_handle_call(params);
  fit_rows(ticket);
}

void CudaSteps::fit_rows(const Ticket& ticket) const {
  if (ticket.handle == nullptr || !may_lack_rows(ticket)) return;
  const KeptRouting kept = kept_routing_at(plan_, ticket.handle);
  FitRowsParams params;
  params.plan = plan_;
  params.state = links_.state;
  params.header = kept.header;
  params.from = {kept.rows, kept.slots, kept.starts};
  params.to = arrived_of(ticket);
  launch_fit_rows(params, now().kernel_plan.most_small_blocks(max_blocks_), stream_);
}

ArrivedRows CudaSteps::arrived_of(const Ticket& ticket) const {
  if (ticket.handle == nullptr) return arrived_;
  const KeptRouting kept = kept_routing_at(plan_, ticket.handle);
  if (may_lack_rows(ticket)) return {combined_rows_, kept.slots, fitting_starts_};
  return {kept.rows, kept.slots, kept.starts};
}
const HandleRow* CudaSteps::kept_rows_of(const Ticket& ticket) const {
  return ticket.handle == nullptr ? nullptr : kept_routing_at(plan_, ticket.handle).rows;
}
const RoutingEntry* CudaSteps::own_table_of(const Ticket& ticket) const {
  return ticket.handle == nullptr ? nullptr : kept_routing_at(plan_, ticket.handle).own;
}

}  // namespace ferry::cuda
