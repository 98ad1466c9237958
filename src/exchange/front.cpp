#include "exchange/front.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>

#include "exchange/agreement/contract.h"
#include "exchange/agreement/world_options.h"
#include "exchange/arrival_slots.h"
#include "exchange/call_scope.h"
#include "exchange/checks/handle_check.h"
#include "exchange/checks/row_order_rules.h"
#include "exchange/checks/valid_options.h"
#include "exchange/log/made_log.h"
#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/layout/call_word.h"

namespace ferry {

Exchange::Front::Front(World& world, const Shape& shape, const ExchangeOptions& options, const cuda::Launchers* kernels)
    : world_(world),
      rank_(world.rank()),
      shape_(shape),
      options_(options),
      takes_host_memory_(!world.capabilities().device_memory),
      learns_counts_(world.capabilities().row_counts),
      takes_overflow_(world.capabilities().overflow),
      keeps_overflow_(world.capabilities().overflow_handles),
      may_ask_(world.capabilities().asked_counts),
      world_orders_(world.capabilities().row_orders),
      world_can_(world.capabilities()),
      traced_(traced_exchange(
          rank_, shape_.ranks,
          fmt::format("{}, format {}, {}", to_string(shape), options.format.name(), to_string(options.reduction)))),
      exceptions_(std::uncaught_exceptions()),
      mask_(options.mask) {
  try {
    require_possible();
  } catch (const Error& refusal) {
    tell_refusal(world, options, refusal);
    throw;
  }
  require_same_contract(world, shape, options);
  formats_.set(shape, options, rank_);
  for (int format = 0; format < formats_.count(); ++format)
    contexts_.push_back({rank_, shape_, formats_.options_in(format), formats_.layout_in(format), takes_host_memory_,
                         learns_counts_, world_can_.f16_sums, world_can_.more_outputs, world_can_.narrow_weights});
  mask_.resize(static_cast<std::size_t>(shape.ranks));
  const HeapMap map = make_heap_map(shape, options, rank_, world.has_remote_ranks() && !options.skip_a2a);
  memory_bytes_ = map.total();
  message_slot_bytes_ = map.message_slot_bytes();
  steps_ = kernels == nullptr ? world.make_steps(shape_, options_, map)
                              : world.make_compiled_steps(shape_, options_, map, *kernels);
  if (options.short_handles && takes_host_memory_)
    short_handles_.emplace(make_plan(shape_, options_, map, rank_), formats_.layout().handle_bytes);
  steps_->end().set_reasons([&world](int rank) { return world.abort_reason(rank); });
  open_.emplace(world.open_exchanges_, *steps_);
  log_made(world, shape_, options_, formats_.layout(), map);
}

// As far as this rank knows.
void Exchange::Front::require_possible() const {
  require_valid(shape_, options_);
  if (shape_.ranks != world_.size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: shape.ranks is {}; this world has {} ranks", rank_, shape_.ranks, world_.size()));
  if (options_.row_orders.has(RowOrder::by_source)) require_order_of_world(RowOrder::by_source);
  require_options_of_world(rank_, options_, world_can_);
}

// I10: the others may wait for more of this rank in a round that is open, or when an error takes this rank away.
Exchange::Front::~Front() {
  open_.reset();
  const bool fails = std::uncaught_exceptions() > exceptions_;
  if ((order_.is_open() || fails) && steps_->end().get() == nullptr) tell_left();
}

void Exchange::Front::tell_left() noexcept {
  try {
    steps_->tell_left(order_);
  } catch (...) {
    // Then the others find it out at their deadlines.
  }
}

void Exchange::Front::require_not_ended() const {
  if (const auto ended = steps_->end().get())
    ExchangeEnd::raise(*ended, " This exchange refuses every call since then");
}

std::chrono::milliseconds Exchange::Front::deadline_of(const CallOptions& call) const {
  return std::min(call.deadline.count() > 0 ? call.deadline : options_.deadline, kMaxDeadline);
}

void Exchange::Front::start(Call which, const CallOptions& call) {
  require_not_ended();
  order_.require_allowed(rank_, which);
  steps_->start(call, deadline_of(call));
}

// What the exchange of a world of another kind could do.
void Exchange::Front::require_order_of_world(RowOrder order) const {
  if (!world_orders_.has(order))
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: exchanges of this world lay out no rows in the order {} yet; they can do: {}",
                            rank_, to_string(order), to_string(world_orders_)));
}

// Completes `ticket`, which has the numbers. `may_refuse_later`: there is a call after this one in which all ranks
// learn of too many tokens.
DispatchArgs Exchange::Front::checked_dispatch_input(const DispatchInput& in, Ticket& ticket, bool may_refuse_later) {
  formats_.take(in.format);
  steps_->take_format(in.format);
  CheckContext context = call_context();
  context.learns_counts = learns_counts_ || (may_ask_ && may_refuse_later);
  DispatchArgs args = check_dispatch_input(context, in);
  args.format = in.format;
  if (takes_host_memory_) args.weights = dispatch_weights_.widened(in.topk_weights, args.weights);
  ticket.by_counts = in.in_rank || in.expert_counts;
  if (ticket.by_counts) counts_input_.apply(call_context(), world_can_, in, args);
  ticket.rows = check_row_order(call_context(), in);
  require_order_of_world(ticket.rows.order);
  ticket.overflow = in.overflow;
  if (in.overflow != Overflow::refused && !takes_overflow_)
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
  context.learns_counts = learns_counts_ || asked_;
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
  if (out.handle && ticket.overflow != Overflow::refused && !keeps_overflow_)
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
  if (takes_host_memory_) args.weights = combine_weights_.widened(in.topk_weights, args.weights);
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

// All ranks refuse the dispatch alike.
template <class Body>
void Exchange::Front::may_be_refused(const Body& body) {
  try {
    body();
  } catch (const DispatchRefused&) {
    order_.give_up_dispatch();
    throw;
  }
}

void Exchange::Front::receive(const RowsOut& rows) {
  const Ticket& ticket = order_.dispatch_ticket();
  may_be_refused([&] {
    if (learns_counts_)
      check_row_capacity(call_context(), rows, ticket.rows.order, steps_->await_counts(ticket));
    else if (asked_)
      check_row_capacity(call_context(), rows, ticket.rows.order, *asked_);
    steps_->receive(ticket, rows);
  });
  order_.advance(Call::dispatch_wait);
  if (short_handles_) short_handles_->leave(call_context());
}

RowCounts Exchange::Front::wait_for_counts(const CallOptions& call) {
  CallScope scope(*steps_, traced_, "wait_for_counts");
  if (!may_ask_)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: wait_for_counts: exchanges of this world do not tell the host what came; give "
                            "dispatch_wait outputs for {} rows, the worst case (RowLayout::min_row_capacity)",
                            rank_, formats_.layout().min_row_capacity));
  start(Call::wait_for_counts, call);
  const Ticket& ticket = order_.dispatch_ticket();
  scope.note(ticket, Operation::dispatch);
  may_be_refused([&] { asked_ = steps_->await_counts(ticket); });
  return steps_->row_counts(ticket);
}

void Exchange::Front::dispatch_async(const DispatchInput& in, const CallOptions& call) {
  CallScope scope(*steps_, traced_, "dispatch_async");
  start(Call::dispatch_async, call);
  Ticket ticket = order_.next_dispatch(static_cast<bool>(in.handle));
  const DispatchArgs args = checked_dispatch_input(in, ticket, true);
  scope.note(ticket, Operation::dispatch);
  asked_.reset();
  steps_->send(ticket, args);
  order_.begin_dispatch(Call::dispatch_async, ticket);
}

void Exchange::Front::dispatch_wait(const DispatchOutput& out, const CallOptions& call) {
  CallScope scope(*steps_, traced_, "dispatch_wait");
  start(Call::dispatch_wait, call);
  scope.note(order_.dispatch_ticket(), Operation::dispatch);
  receive(checked_rows(out, order_.dispatch_ticket()));
}

void Exchange::Front::dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) {
  CallScope scope(*steps_, traced_, "dispatch");
  start(Call::dispatch, call);
  Ticket ticket = order_.next_dispatch(static_cast<bool>(in.handle));
  asked_.reset();
  const DispatchArgs args = checked_dispatch_input(in, ticket, false);
  const RowsOut rows = checked_rows(out, ticket);
  scope.note(ticket, Operation::dispatch);
  if (steps_->fuses_halves()) {
    steps_->dispatch(ticket, args, rows);
    order_.begin_dispatch(Call::dispatch, ticket);
    if (short_handles_) short_handles_->leave(call_context());
    return;
  }
  steps_->send(ticket, args);
  order_.begin_dispatch(Call::dispatch_async, ticket);
  receive(rows);
}

Ticket Exchange::Front::next_combine(const CombineInput& in) const {
  return in.handle ? order_.next_kept_combine() : order_.next_combine();
}

void Exchange::Front::combine_async(const CombineInput& in, const CallOptions& call) {
  CallScope scope(*steps_, traced_, "combine_async");
  const Call which = in.handle ? Call::kept_combine_async : Call::combine_async;
  start(which, call);
  Ticket ticket = next_combine(in);
  const CombineArgs args = checked_combine_input(in, ticket);
  scope.note(ticket, Operation::combine);
  steps_->send_back(ticket, args);
  sent_back_ = args;
  order_.begin_combine(which, ticket);
}

void Exchange::Front::combine_wait(const CombineOutput& out, const CallOptions& call) {
  CallScope scope(*steps_, traced_, "combine_wait");
  const Call which = order_.half_combined();
  start(which, call);
  Ticket ticket = order_.combine_ticket();
  const CombineOut sums = checked_sums(out, ticket, sent_back_);
  scope.note(ticket, Operation::combine);
  steps_->reduce(ticket, sent_back_, sums);
  order_.advance(which);
}

void Exchange::Front::combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) {
  CallScope scope(*steps_, traced_, "combine");
  start(in.handle ? Call::kept_combine : Call::combine, call);
  Ticket ticket = next_combine(in);
  CombineArgs args = checked_combine_input(in, ticket);
  const CombineOut sums = checked_sums(out, ticket, args);
  scope.note(ticket, Operation::combine);
  if (steps_->fuses_halves()) {
    steps_->combine(ticket, args, sums);
    return order_.begin_combine(in.handle ? Call::kept_combine : Call::combine, ticket);
  }
  steps_->send_back(ticket, args);
  sent_back_ = args;
  order_.begin_combine(in.handle ? Call::kept_combine_async : Call::combine_async, ticket);
  steps_->reduce(ticket, args, sums);
  order_.advance(order_.half_combined());
}

ArrivalSlots Exchange::Front::arrival_slots(int format) const {
  return make_arrival_slots(steps_->arrival_slots(), message_slot_bytes_, shape_, formats_.layout_in(format),
                            formats_.options_in(format));
}

void Exchange::Front::check() {
  CallScope scope(*steps_, traced_, "check");
  steps_->poll();
  require_not_ended();
}

// A mask only grows.
void Exchange::Front::add_to_mask(const RankMask& mask) {
  order_.require_not_released(rank_, "add_to_mask");
  check_added_mask(call_context(), mask);
  for (std::size_t peer = 0; peer < mask.size(); ++peer) mask_[peer] = mask_[peer] || mask[peer];
  if (options_.skip_a2a) return;
  CallScope scope(*steps_, traced_, "add_to_mask");
  steps_->set_mask(mask_);
}

}  // namespace ferry
