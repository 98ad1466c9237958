#include "cuda/exchange/launches/left_routing.h"

#include "cuda/exchange/order/stream_order.h"
#include "exchange/checks/handle_check.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/protocol/contracts/row_places.h"

namespace ferry::cuda {

LeftRouting::LeftRouting(const ExchangeState& state, const Shape& shape, const ExchangeOptions& options)
    : state_(state),
      header_(handle_header(state.rank(), shape, options, {})),
      combines_choose_(options.reduction == Reduction::either),
      combined_rows_(state.memory()->as<HandleRow>(state.state_plan().combined_rows)),
      fitting_starts_(
          row_starts_at(state.plan(), state.memory()->as<std::uint32_t>(state.state_plan().fitting_starts))) {}

HandleHeader LeftRouting::header_of(const Ticket& ticket) const {
  HandleHeader header = header_;
  header.alignment = state_.plan().alignment;
  header.num_tokens = ticket.num_tokens;
  header.order = static_cast<std::int32_t>(ticket.rows.order);
  return header;
}

HandleCheck LeftRouting::handle_check(Operation operation, const Ticket& ticket) const {
  return {.handle = ticket.handle,
          .wanted = header_of(ticket),
          .operation = operation,
          .may_lack_rows = may_lack_rows(ticket),
          .may_be_by_counts = state_.device().left_handles->by_counts};
}

HandleCheck LeftRouting::combine_check(const Ticket& ticket, const CombineArgs& args) const {
  HandleCheck check = handle_check(Operation::combine, ticket);
  check.chooses = combines_choose_;
  check.chose_exact = args.exact && combines_choose_;
  return check;
}

void LeftRouting::launch_begin(const HandleCheck& check, const CombineOrder::Start& start,
                               const std::uint8_t* masked) const {
  auto params = state_.params_of<HandleCallParams>(masked);
  params.check = check;
  params.number = start.number;
  params.waits = start.waits;
  state_.kernels().small.begin_handle(params, state_.kernels_are_exclusive(), state_.stream());
}

// Routing the handle's ids again gives the same rows, where what masked sources had stays. Weights travel only where
// rows may say them, or a rank may give new ones. What stands in for masked sources reads the handle ahead of the
// kernel that routes, so a kernel ahead of both checks it.
HandleCheck LeftRouting::route_again(const Ticket& ticket, DispatchArgs& args) const {
  const Plan& plan = state_.plan();
  HandleCheck check = handle_check(Operation::dispatch, ticket);
  if (const std::uint8_t* masked = state_.masks().newest_of_replays(); masked != nullptr) {
    launch_begin(check, {}, state_.masks().newest());
    check = {};
    auto params = state_.local_params_of<StandInParams>(masked);
    params.tag = state_.links().tag;
    params.handle = ticket.handle;
    params.by_source = ticket.rows.order == RowOrder::by_source;
    launch_stand_in(params, state_.stream());
  }
  const KeptRouting kept = kept_routing_at(plan, ticket.handle);
  args.ids = {kept.ids, false};
  const bool travel = plan.map.has_token_lists() || plan.map.has_late_weights();
  if (travel && !args.weights.are_given()) args.weights = {kept.weights, nullptr, nullptr, plan.shape.top_k};
  return check;
}

void LeftRouting::leave(const Ticket& ticket, const RowsOut& out, FinishParams& left) {
  may_have_overflowed_ = out.may_overflow;
  if (out.may_overflow && capture_of(state_.stream()) != kNoCapture) graphs_may_overflow_ = true;
  if (out.handle == nullptr) return;
  LeftHandles& all = *state_.device().left_handles;
  if (out.may_overflow) all.may_lack_rows = true;
  if (ticket.by_counts) all.by_counts = true;
  if (ticket.handle != nullptr && !state_.plan().map.has_late_weights()) return;  // copy_kept copies the handle
  if (ticket.handle != nullptr) copy_handle(ticket, out);                         // and then adds weights: new ones
  auto params = state_.local_params_of<KeepParams>(state_.opened_mask());
  params.from = state_.arrived();
  params.header = header_of(ticket);
  params.header.shared_begin = ticket.shared.begin;
  params.header.shared_end = ticket.shared.end;
  params.header.by_counts = ticket.by_counts ? 1 : 0;
  params.has_old = ticket.handle != nullptr;
  params.header.has_weights = ticket.has_weights ? 1 : 0;
  params.header.row_room = room_of(out).rows + 1;  // RowRoom::kAll becomes 0
  params.to = out.handle;
  left.kept = params;
  left.has_kept = true;
}

// Token lists do not wait for this, since other ranks need them; but where late weights are added to the copy.
void LeftRouting::copy_kept(const Ticket& ticket, const RowsOut& out, const FinishParams& left) const {
  if (ticket.handle != nullptr && out.handle != nullptr && !left.has_kept) copy_handle(ticket, out);
}

// Once a dispatch that may overflow has left a handle on this device, handles say how much room their dispatch had: a
// replay writes its own into the copy, and a combine with a handle reads it. Before that no kernel is launched for it.
void LeftRouting::copy_handle(const Ticket& ticket, const RowsOut& out) const {
  const Plan& plan = state_.plan();
  if (out.handle != ticket.handle)
    cuda_check(
        cudaMemcpyAsync(out.handle, ticket.handle, HandleSizes(plan).bytes(), cudaMemcpyDefault, state_.stream()),
        "cudaMemcpyAsync");
  if (!state_.device().left_handles->may_lack_rows) return;
  launch_note_room({state_.links().state, kept_routing_at(plan, out.handle).header, room_of(out).rows + 1},
                   state_.stream());
}

// Only a kernel knows the row order of a handle, so a kernel compares that with the weights.
CombineBasis LeftRouting::begin_combine(const Ticket& ticket, const CombineArgs& args,
                                        const CombineOrder::Start& start) {
  is_extra_ = start.number != CombineNumber::of_dispatch;
  combine_mask_ = ticket.handle != nullptr ? state_.masks().newest() : state_.opened_mask();
  const CombineBasis basis = basis_of(ticket, args);
  if (!is_extra_) return basis;
  HandleCheck check = combine_check(ticket, args);
  check.wants_order = args.row_weights != nullptr;
  check.gives_weights = !args.exact && args.weights.are_given();
  if (check.wants_order)
    check.wanted.order =
        static_cast<std::int32_t>(args.has_row_weights_of_k ? RowOrder::by_source : RowOrder::by_expert);
  launch_begin(check, start, combine_mask_);
  if (ticket.handle != nullptr && basis.may_lack_rows)
    fit_rows(kept_routing_at(state_.plan(), ticket.handle), basis.arrived);
  return basis;
}

CombineBasis LeftRouting::end_combine(const Ticket& ticket, const CombineArgs& sent) const {
  if (ticket.handle != nullptr) launch_begin(combine_check(ticket, sent), {}, state_.masks().newest());
  return basis_of(ticket, sent);
}

void LeftRouting::fit_rows(const KeptRouting& kept, const ArrivedRows& to) const {
  FitRowsParams params;
  params.plan = state_.plan();
  params.state = state_.links().state;
  params.header = kept.header;
  params.from = {kept.rows, kept.slots, kept.starts};
  params.to = to;
  launch_fit_rows(params, state_.most_small_blocks(), state_.stream());
}

bool LeftRouting::may_lack_rows(const Ticket& ticket) const {
  if (ticket.handle != nullptr) return state_.device().left_handles->may_lack_rows;
  return may_have_overflowed_ || graphs_may_overflow_;
}

CombineBasis LeftRouting::basis_of(const Ticket& ticket, const CombineArgs& args) const {
  CombineBasis basis;
  basis.exact = args.exact;
  basis.masked = combine_mask_;
  basis.may_lack_rows = may_lack_rows(ticket);
  basis.is_extra = is_extra_;
  if (ticket.handle == nullptr) {
    basis.arrived = state_.arrived();
  } else {
    const KeptRouting kept = kept_routing_at(state_.plan(), ticket.handle);
    basis.own = kept.own;
    basis.header = kept.header;
    basis.handle_rows = kept.rows;
    basis.arrived = {kept.rows, kept.slots, kept.starts};
    if (basis.may_lack_rows) basis.arrived = {combined_rows_, kept.slots, fitting_starts_};
  }
  return basis;
}

void LeftRouting::send_zeros(const CombineBasis& basis) const {
  if (!basis.may_lack_rows) return;
  auto params = state_.params_of<ZeroResultsParams>(basis.masked);
  params.plan.exact = basis.exact;
  params.arrived = basis.arrived;
  params.kept = basis.handle_rows;
  params.bytes = state_.counters().bytes;
  params.is_extra = basis.is_extra;
  state_.kernels().small.send_zeros(params, state_.most_small_blocks(), state_.stream());
}

}  // namespace ferry::cuda
