// Exchange::Front: the checks of each call's arguments, before anything moves (I17).
#include <fmt/core.h>

#include <algorithm>

#include "exchange/checks/handle_check.h"
#include "exchange/checks/row_order_rules.h"
#include "exchange/front.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/layout/call_word.h"

namespace ferry {

// What the exchange of a world of another kind could do.
void Exchange::Front::require_order_of_world(RowOrder order) const {
  if (!world_can_.row_orders.has(order))
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: exchanges of this world lay out no rows in the order {} yet; they can do: {}",
                            rank_, to_string(order), to_string(world_can_.row_orders)));
}

// Completes `ticket`, which has the numbers. Too many tokens are no error yet: all ranks learn of them.
DispatchArgs Exchange::Front::checked_dispatch_input(const DispatchInput& in, Ticket& ticket) {
  formats_.take(in.format);
  steps_->take_format(in.format);
  CheckContext context = call_context();
  context.learns_counts = world_can_.row_counts || world_can_.asked_counts;
  DispatchArgs args = check_dispatch_input(context, in);
  args.format = in.format;
  if (!world_can_.device_memory) args.weights = dispatch_weights_.as_f32(in.topk_weights, args.weights);
  ticket.by_counts = in.in_rank || in.expert_counts;
  if (ticket.by_counts) counts_input_.apply(call_context(), world_can_, in, args);
  ticket.rows = check_row_order(call_context(), in);
  require_order_of_world(ticket.rows.order);
  ticket.overflow = in.overflow;
  if (in.overflow != Overflow::refused && !world_can_.overflow)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: overflow is {}; exchanges of this world write all rows that come: leave it out, "
                            "and give outputs for the worst case (RowLayout::least_rows)",
                            rank_, to_string(in.overflow)));
  steps_->check_dispatch_input(call_context(), in, args);
  ticket.num_tokens = args.num_tokens;
  ticket.has_weights = args.weights.are_given();
  if (args.num_tokens <= shape_.max_tokens) ticket.shared = shared_tokens(options_, rank_, args.num_tokens);
  if (in.handle) {
    read_handle(in.handle, Operation::dispatch, ticket);
    static_assert(mark_of_format(kMostFormats - 1) <= 0xFFFF, "a mark has 16 bits");
    ticket.mark ^= mark_of_format(in.format);
    ticket.has_weights = ticket.has_weights || args.weights.are_given();
    if (args.num_tokens != ticket.num_tokens)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("rank {}: tokens has {} rows; the handle's dispatch had {} tokens", rank_,
                              args.num_tokens, ticket.num_tokens));
  }
  args.shared_begin = ticket.shared.begin;
  args.shared_end = ticket.shared.end;
  return args;
}

// Completes `ticket` with what the handle says of its dispatch.
bool Exchange::Front::read_handle(const ConstTensor& handle, Operation operation, Ticket& ticket) {
  ticket.handle = check_handle_tensor(call_context(), "handle", handle);
  if (short_handles_)
    ticket.handle = short_handles_->given(call_context(), handle, operation);
  else
    ticket.handle_bytes = handle.shape[0];
  const auto facts = steps_->read_handle(call_context(), ticket.handle, operation);
  (operation == Operation::dispatch ? replayed_ : returned_) = facts;
  if (!facts) {
    if (ticket.rows.order == RowOrder::padded && ticket.rows.expert_stride == 0)
      ticket.rows.expert_stride = formats_.layout().expert_rows;
    return false;
  }
  ticket.num_tokens = facts->num_tokens;
  ticket.shared = facts->shared;
  ticket.has_weights = facts->has_weights;
  ticket.by_counts = facts->by_counts;
  ticket.mark = routing_mark(facts->routing, true);
  if (operation == Operation::dispatch) check_replayed_order(call_context(), ticket.rows, *facts);
  ticket.rows = facts->rows;
  return true;
}

RowsOut Exchange::Front::checked_rows(const DispatchOutput& out, const Ticket& ticket) {
  CheckContext context = call_context();
  context.learns_counts = world_can_.row_counts || asked_;
  context.shared_rows = ticket.shared.end - ticket.shared.begin;
  RowsOut rows = check_dispatch_output(context, out, ticket.rows, ticket.overflow);
  if (ticket.by_counts) check_counts_output(call_context(), out, ticket.handle != nullptr);
  rows.handle = check_handle_tensor(call_context(), "handle", out.handle);
  if (short_handles_) rows.handle = short_handles_->to_leave(out.handle);
  if (out.handle) steps_->require_handles(call_context());
  if (out.handle && ticket.rows.order == RowOrder::padded && ticket.rows.expert_stride < formats_.layout().expert_rows)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: handle is given, and expert_stride is {}: a dispatch whose padded rows may "
                            "overflow leaves none. Give a stride of {} or more (RowLayout::expert_rows)",
                            rank_, ticket.rows.expert_stride, formats_.layout().expert_rows));
  if (out.handle && ticket.overflow != Overflow::refused && !world_can_.overflow_handles)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: handle is given, and overflow is {}; in this world a dispatch whose rows may "
                            "overflow leaves none yet: leave one of the two out",
                            rank_, to_string(ticket.overflow)));
  steps_->check_rows(call_context(), out);
  if (ticket.handle != nullptr && replayed_) check_replay_output(call_context(), rows, *replayed_);
  return rows;
}

CombineArgs Exchange::Front::checked_combine_input(const CombineInput& in, Ticket& ticket) {
  if (in.handle && !read_handle(in.handle, Operation::combine, ticket)) ticket.num_tokens = -1;
  const HandleFacts facts = returned_.value_or(HandleFacts{});
  const std::uint32_t num_rows = in.handle ? std::min(facts.num_rows, facts.row_room) : steps_->num_rows();
  CombineArgs args = check_combine_input(call_context(), in, ticket.num_tokens, num_rows);
  if (!world_can_.device_memory) args.weights = combine_weights_.as_f32(in.topk_weights, args.weights);
  take_reduction(call_context(), args, ticket);
  check_late_weights(call_context(), in, args, ticket);
  check_row_weights(call_context(), in, ticket, num_rows, args);
  steps_->check_combine_input(call_context(), ticket, in, args);
  args.shared_begin = ticket.shared.begin;
  args.shared_end = ticket.shared.end;
  if (ticket.num_tokens < 0) learn_rows(in);
  return args;
}

// Where the number of tokens of a combine is not known yet, all its tensors by token have the same number of rows.
void Exchange::Front::learn_rows(const CombineInput& in) {
  rows_by_token_ = -1;
  for (const ConstTensor* tensor : {&in.topk_weights, &in.bias[0], &in.bias[1]}) {
    if (!*tensor) continue;
    if (rows_by_token_ >= 0 && rows_by_token_ != tensor->shape[0])
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("rank {}: topk_weights and bias have {} and {} rows; each has a row for each token",
                              rank_, rows_by_token_, tensor->shape[0]));
    rows_by_token_ = tensor->shape[0];
  }
}

// Where only the device knows how many tokens the handle's dispatch had, the sums say it; a kernel compares.
void Exchange::Front::learn_tokens(const CombineOutput& out, Ticket& ticket, CombineArgs& args) const {
  if (out.tokens.rank == 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: tokens is not given. On a GPU a combine with a handle needs it, also for an "
                            "epilogue: its shape says how many tokens there are",
                            rank_));
  const std::int64_t tokens = out.tokens.shape[0];
  if (tokens > shape_.max_tokens)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: tokens has {} rows; it must have those of the handle's dispatch, at most "
                            "max_tokens, {}",
                            rank_, tokens, shape_.max_tokens));
  if (rows_by_token_ >= 0 && rows_by_token_ != tokens)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: topk_weights or bias has {} rows and tokens has {}; all must have those of the "
                            "handle's dispatch",
                            rank_, rows_by_token_, tokens));
  ticket.num_tokens = static_cast<int>(out.tokens.shape[0]);
  ticket.shared = shared_tokens(options_, rank_, ticket.num_tokens);
  args.shared_begin = ticket.shared.begin;
  args.shared_end = ticket.shared.end;
}

CombineOut Exchange::Front::checked_sums(const CombineOutput& out, Ticket& ticket, CombineArgs& args) {
  if (ticket.num_tokens < 0) learn_tokens(out, ticket, args);
  CombineOut sums = check_combine_output(call_context(), out, args, ticket.num_tokens);
  sums.weights = check_returned_weights(call_context(), out, ticket.num_tokens);
  sums.waited_ns = check_combine_waits(call_context(), out);
  steps_->check_sums(call_context(), ticket, out, sums);
  return sums;
}

}  // namespace ferry
