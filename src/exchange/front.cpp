#include "exchange/front.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

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

Exchange::Front::Front(World& world, const Shape& shape, const ExchangeOptions& options, const cuda::Launchers* kernels,
                       const Front* memory_of)
    : world_(world),
      rank_(world.rank()),
      shape_(shape),
      options_(options),
      world_can_(world.capabilities()),
      traced_(traced_exchange(
          rank_, shape_.ranks,
          fmt::format("{}, format {}, {}", to_string(shape), options.format.name(), to_string(options.reduction)))),
      exceptions_(std::uncaught_exceptions()),
      mask_(options.mask) {
  try {
    require_possible(memory_of);
  } catch (const Error& refusal) {
    tell_refusal(world, memory_of == nullptr ? options : memory_of->options_of_all(options), refusal);
    throw;
  }
  number_ = require_same_contract(world, shape, options, world.open_exchanges_->newest(),
                                  memory_of == nullptr ? 0 : memory_of->number_);
  world.open_exchanges_->set_newest(number_);
  formats_.set(shape, options, rank_);
  for (int format = 0; format < formats_.count(); ++format)
    contexts_.push_back({rank_, shape_, formats_.options_in(format), formats_.layout_in(format),
                         !world_can_.device_memory, world_can_.row_counts, world_can_.f16_sums, world_can_.more_outputs,
                         world_can_.narrow_weights});
  mask_.resize(static_cast<std::size_t>(shape.ranks));
  const HeapMap map = make_heap_map(shape, options, rank_, world.has_remote_ranks() && !options.skip_a2a);
  message_slot_bytes_ = map.message_slot_bytes();
  if (memory_of != nullptr) memory_of->require_would_leave(set_up_deadline(options));
  steps_ = make_steps(map, kernels, memory_of);
  if (options.short_handles && !world_can_.device_memory)
    short_handles_.emplace(make_plan(shape_, options_, map, rank_), formats_.layout().handle_bytes);
  steps_->set_exchange_number(number_);
  steps_->end().set_reasons([&world](int rank) { return world.abort_reason(rank); });
  open_.emplace(world.open_exchanges_, *steps_);
  if (memory_of != nullptr) take_memory({.deadline = set_up_deadline(options)});
  log_made(world, shape_, options_, formats_.layout(), map);
}

// As far as this rank knows.
void Exchange::Front::require_possible(const Front* memory_of) const {
  require_valid(shape_, options_);
  if (shape_.ranks != world_.size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: shape.ranks is {}; this world has {} ranks", rank_, shape_.ranks, world_.size()));
  if (options_.row_orders.has(RowOrder::by_source)) require_order_of_world(RowOrder::by_source);
  require_options_of_world(rank_, options_, world_can_);
  if (memory_of != nullptr) require_place_in(*memory_of);
}

// I10: the others may wait for more of this rank in a round that is open, or when an error takes this rank away.
Exchange::Front::~Front() {
  open_.reset();
  if (!place_->has_memory()) return;  // nobody waits for it
  const bool fails = std::uncaught_exceptions() > exceptions_;
  if ((order_.is_open() || fails) && steps_->end().get() == nullptr) tell_left();
  leave_place();
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

// All ranks refuse the dispatch alike. `begins`: the dispatch that the body begins.
template <class Body>
void Exchange::Front::may_be_refused(const Body& body, const Ticket* begins) {
  try {
    body();
  } catch (const DispatchRefused& refused) {
    if (begins != nullptr) order_.begin_dispatch(Call::dispatch, *begins);
    order_.give_up_dispatch(refused.gives_up_half_combine);
    throw;
  }
}

void Exchange::Front::start(Call which, const CallOptions& call) {
  const bool has_hooks = std::exchange(has_hooks_, false);
  require_not_ended();
  order_.require_allowed(rank_, which);
  if (needs_hooks_ && !has_hooks && reads_hooks(which))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("rank {}: the kernels of this exchange have hooks, and none are given; make the call of its "
                    "CompiledExchange, which takes them",
                    rank_));
  steps_->start(call, deadline_of(call));
  may_be_refused([&] { steps_->require_not_refused(true); });
}

void Exchange::Front::receive(const RowsOut& rows) {
  const Ticket& ticket = order_.dispatch_ticket();
  may_be_refused([&] {
    if (world_can_.row_counts)
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
  if (!world_can_.asked_counts)
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
  const DispatchArgs args = checked_dispatch_input(in, ticket);
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
  const DispatchArgs args = checked_dispatch_input(in, ticket);
  const RowsOut rows = checked_rows(out, ticket);
  scope.note(ticket, Operation::dispatch);
  if (steps_->fuses_halves()) {
    may_be_refused([&] { steps_->dispatch(ticket, args, rows); }, &ticket);
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
  may_be_refused([&] { steps_->require_not_refused(false); });
}

// A mask only grows.
void Exchange::Front::add_to_mask(const RankMask& mask) {
  order_.require_memory(rank_, "add_to_mask");
  check_added_mask(call_context(), mask);
  for (std::size_t peer = 0; peer < mask.size(); ++peer) mask_[peer] = mask_[peer] || mask[peer];
  (*place_)->add_to_mask(mask_);
  if (options_.skip_a2a) return;
  CallScope scope(*steps_, traced_, "add_to_mask");
  steps_->set_mask(mask_);
}

}  // namespace ferry
