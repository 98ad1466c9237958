#include "cuda/exchange/cuda_steps.h"

#include <algorithm>
#include <utility>

#include "cuda/device/nvtx_range.h"
#include "cuda/device/refuse.h"
#include "cuda/exchange/order/handle_compare.h"
#include "cuda/exchange/order/scale_compare.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/layout/abort_word.h"

namespace ferry::cuda {

CudaSteps::CudaSteps(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options,
                     const HeapMap& map, const Launchers& launchers, GpuHeaps heaps)
    : state_(device, rank, shape, options, map, launchers, heaps.all),
      heaps_(state_, std::move(heaps), options.skip_a2a ? RankMask{} : options.mask),
      checks_(device, rank, launchers.of_program),
      kernels_(state_),
      routing_(state_, shape, options),
      short_handles_(state_, shape, options),
      counts_(state_),
      outputs_(state_) {
  for (int format = 0; format < num_formats(options); ++format)
    min_row_capacity_ = std::max(min_row_capacity_, row_layout(shape, options, rank, format).min_row_capacity);
}

CudaSteps::~CudaSteps() {
  if (DeferredFree* const later = device().deferred_free.get(); later != nullptr) {
    kernels_.finish_trace();
    heaps_.free_with(*later);
    state_.free_with(*later);  // together with the heaps: freeing it waits for the device, too
    counts_.free_with(*later);
    return;
  }
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device().index);
  wait_for_device();  // this rank's kernels write to memory that heaps_ keeps alive
  kernels_.finish_trace();
  cudaSetDevice(before);
}

void CudaSteps::start(const CallOptions& call, std::chrono::milliseconds deadline) {
  poll_calls();
  checks_.check_call(call);
  state_.begin_call(call, deadline);
}

void CudaSteps::start_on_host(const CallOptions& call, std::chrono::milliseconds deadline) {
  poll_calls();
  checks_.check_host_call(call);
  state_.begin_call(call, deadline);
}

void CudaSteps::check_dispatch_input(const CheckContext&, const DispatchInput& in, DispatchArgs& args) {
  const int max_tokens = plan().shape.max_tokens;
  if (args.num_tokens > max_tokens && capture() != kNoCapture)
    refuse(ErrorKind::invalid_argument, state_.rank(), "tokens has {} rows; the limit is max_tokens = {}",
           args.num_tokens, max_tokens);
  checks_.check_dispatch_input(in, args);
  args.input_scale_at = in.input_scale;
}

void CudaSteps::check_combine_input(const CheckContext&, const Ticket&, const CombineInput& in,
                                    const CombineArgs& args) {
  checks_.check_combine_input(in, args);
  kernels_.require_types_in(args);
  kernels_.take_given(in.topk_weights);
}

void CudaSteps::check_sums(const CheckContext&, const Ticket& ticket, const CombineOutput& out,
                           const CombineOut& sums) {
  checks_.check_sums(out, sums, ticket.num_tokens);
  kernels_.require_types_out(sums);
}

// A dispatch:

TokensToSend CudaSteps::begin_dispatch(const Ticket& ticket, const DispatchArgs& args) {
  TokensToSend routed{args, {}};
  if (args.expert_counts != nullptr) counts_.give(routed.args);
  compares_calls_ = compares_calls_ || ticket.handle != nullptr;
  if (ticket.handle != nullptr) routed.replay = routing_.route_again(ticket, routed.args);
  return routed;
}

void CudaSteps::end_dispatch(const Ticket& ticket, const RowsOut& rows, FinishParams left) {
  const RowsOut whole = short_handles_.with_whole(rows);
  routing_.leave(ticket, whole, left);
  outputs_.add_rows(ticket, rows, left);
  kernels_.finish_dispatch(left, &rows);
  routing_.copy_kept(ticket, whole, left);
  outputs_.launch_last(rows, left);
  counts_.take(ticket, rows);
  short_handles_.leave(rows);
}

void CudaSteps::send(const Ticket& given, const DispatchArgs& args) {
  const NvtxRange range("ferry dispatch: send", state_.rank());
  streams_.follow(state_.stream());
  const Ticket ticket = short_handles_.begin(given, Operation::dispatch);
  const std::uint8_t* masked = state_.mask_of_dispatch(ticket.handle != nullptr);
  state_.set_dispatch_call(order_.number_dispatch(capture()));
  if (counts_.has_excess(ticket)) {
    counts_.tell_excess(ticket);
    Ticket none = ticket;
    none.num_tokens = 0;
    TokensToSend nothing;
    nothing.excess = excess_mark(plan().shape);
    nothing.args.input_scale = args.input_scale;  // ranks compare it all the same (I26)
    nothing.args.input_scale_at = args.input_scale_at;
    kernels_.send(none, masked, nothing);
  } else {
    kernels_.send(ticket, masked, begin_dispatch(ticket, args));
  }
  state_.open_mask(masked);
  order_.begin_dispatch(capture(), true);
}

void CudaSteps::receive(const Ticket& given, const RowsOut& rows) {
  const NvtxRange range("ferry dispatch: receive", state_.rank());
  const Ticket ticket = short_handles_.of_whole(given, Operation::dispatch);
  if (counts_.has_excess(ticket)) await_counts(ticket);  // throws
  streams_.follow(state_.stream());
  state_.set_dispatch_call(order_.dispatch_number(capture()));
  outputs_.note_waiting_times(rows);
  end_dispatch(ticket, rows, kernels_.dispatch(ticket, state_.opened_mask(), nullptr, &rows));
  order_.end_dispatch();
}

void CudaSteps::dispatch(const Ticket& given, const DispatchArgs& args, const RowsOut& rows) {
  const NvtxRange range("ferry dispatch", state_.rank());
  if (counts_.has_excess(given)) {
    send(given, args);
    await_counts(given);  // throws
  }
  streams_.follow(state_.stream());
  const Ticket ticket = short_handles_.begin(given, Operation::dispatch);
  const std::uint8_t* masked = state_.mask_of_dispatch(ticket.handle != nullptr);
  state_.set_dispatch_call(order_.number_dispatch(capture()));
  const TokensToSend routed = begin_dispatch(ticket, args);
  const bool fuses = TokenKernels::can_fuse(rows);
  if (!fuses) kernels_.send(ticket, masked, routed);
  outputs_.note_waiting_times(rows);
  const FinishParams left = kernels_.dispatch(ticket, masked, fuses ? &routed : nullptr, &rows);
  state_.open_mask(masked);
  order_.begin_dispatch(capture(), false);
  end_dispatch(ticket, rows, left);
}

std::int64_t CudaSteps::await_counts(const Ticket& ticket) {
  if (capture() != kNoCapture || order_.dispatch_was_captured())
    refuse(ErrorKind::out_of_order, state_.rank(),
           "wait_for_counts: {} captured, and the host waits for what only a run of the graph finds out. Give "
           "dispatch_wait outputs for the worst case (RowLayout::least_rows)",
           capture() != kNoCapture ? "the stream is being" : "the dispatch was");
  streams_.follow(state_.stream());
  if (!counts_.ask(short_handles_.of_whole(ticket, Operation::dispatch))) {
    poll_calls();
    if (const auto refused = take_refusal()) throw DispatchRefused(*refused);
    refuse(ErrorKind::system, state_.rank(), "wait_for_counts: the device ended its work without an answer");
  }
  if (const std::optional<DispatchRefused> refused = counts_.refusal(ticket)) {
    order_.end_dispatch();
    throw DispatchRefused(*refused);
  }
  return row_counts(ticket).rows;
}

// A combine:

// A combine with a handle follows no dispatch.
void CudaSteps::follow_dispatch(const Ticket& ticket) {
  if (ticket.handle == nullptr) state_.set_dispatch_call(order_.dispatch_number(capture()));
}

CombineBasis CudaSteps::begin_combine(const Ticket& ticket, const CombineArgs& args) {
  streams_.follow(state_.stream());
  follow_dispatch(ticket);
  const bool is_told = routing_.is_told(ticket);
  compares_calls_ = compares_calls_ || is_told;
  const CombineOrder::Start start = order_.next_combine(capture(), is_told, ticket.handle != nullptr);
  if (start.number == CombineNumber::own) ++own_numbers_;
  const CombineBasis basis = routing_.begin_combine(short_handles_.begin(ticket, Operation::combine), args, start);
  routing_.send_zeros(basis);
  return basis;
}

void CudaSteps::send_back(const Ticket& ticket, const CombineArgs& args) {
  const NvtxRange range("ferry combine: send", state_.rank());
  const CombineBasis basis = begin_combine(ticket, args);
  kernels_.combine(ticket, basis, {.sends = true, .receives = false}, args, nullptr);
  order_.begin_combine(capture(), ticket.handle != nullptr, true);
}

void CudaSteps::reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& sums) {
  const NvtxRange range("ferry combine: sum", state_.rank());
  streams_.follow(state_.stream());
  follow_dispatch(ticket);
  const CombineBasis basis = routing_.end_combine(short_handles_.of_whole(ticket, Operation::combine), sent);
  outputs_.note_waits_for_results(sums);
  kernels_.combine(ticket, basis, {.sends = false, .receives = true}, sent, &sums);
  outputs_.add_waits_for_results(sums, basis.is_extra);
  order_.end_combine();
}

void CudaSteps::combine(const Ticket& ticket, const CombineArgs& args, const CombineOut& sums) {
  const NvtxRange range("ferry combine", state_.rank());
  const CombineBasis basis = begin_combine(ticket, args);
  outputs_.note_waits_for_results(sums);
  kernels_.combine(ticket, basis, {.sends = true, .receives = true}, args, &sums);
  outputs_.add_waits_for_results(sums, basis.is_extra);
  order_.begin_combine(capture(), ticket.handle != nullptr, false);
}

// Errors:

void CudaSteps::poll() {
  poll_calls();
  require_same_handles();
  require_same_input_scales();
  state_.record().tell_overflow(state_.rank());
}

// I22: kernels that wait, or begin a call that is told, have compared what had come by then.
void CudaSteps::require_same_handles() {
  if (!compares_calls_ || !heaps_.have_words() || streams_.is_captured()) return;
  const OtherHandle other = read_other_handle(state_.links(), state_.masks());
  if (!other.was_given()) return;
  heaps_.tell_all(abort_word(other.bits(), false, other.rank) | kOtherRouting);
  end_exchange({.operation = other.operation,
                .phase = Phase::handle,
                .my_rank = plan().rank,
                .missing_rank = other.rank,
                .reported_by = plan().rank,
                .epoch_seen = kSeenAnotherHandle,
                .epoch_wanted = other.bits()});
}

// I26: kernels compare one dispatch later.
void CudaSteps::require_same_input_scales() {
  if (!state_.compares_scales() || !heaps_.have_words() || streams_.is_captured()) return;
  state_.record().tell_other_scale(state_.rank(), read_other_scale(state_.links(), plan().map, state_.masks()));
}

void CudaSteps::poll_calls() {
  Record& record = state_.record();
  const int rank = state_.rank();
  if (record.has_failed()) {
    if (end().get() == nullptr) end().note(record.failure(state_.links(), state_.masks()));
    record.require_no_bad_handle(rank);
    ExchangeEnd::raise(*end().get());
  }
  record.require_no_bad_ids(rank, state_.num_experts());
  record.require_good_input_scale(rank);
  record.require_same_input_scale(rank);
  record.require_good_counts(rank);
  record.require_enough_rows(rank, min_row_capacity_);
  record.require_room_for_handle(rank);
}

// The kernels have refused a dispatch, and the host did not ask. All that was called since has done nothing. A block of
// the dispatch may say so before the first one has stored its numbers. Then it is not known yet which one it was.
std::optional<DispatchRefused> CudaSteps::take_refusal() {
  const Epoch routing = state_.record().refused();
  if (routing == 0 || !heaps_.have_words()) return {};  // one of the words says who had too many
  if (state_.read().dispatched.raw != routing) return {};
  const DeviceState now = state_.read();  // again: the words of one copy may be of different times
  DispatchRefused refused = counts_.refusal_of(routing);
  state_.record().forget_refused();
  is_stopped_ = true;
  taken_refusal_ = routing;
  const CombineOrder::DoneNothing since = order_.give_up_since(now.dispatch_call.raw);
  did_nothing_ += since.dispatches;
  own_numbers_ = now.extra.raw;
  refused.gives_up_half_combine = since.half_combine;
  return refused;
}

void CudaSteps::require_not_refused(bool in_call) {
  const std::optional<DispatchRefused> refused = take_refusal();
  if (!is_stopped_) return;
  const bool is_captured = in_call ? capture() != kNoCapture : streams_.is_captured();
  if (is_captured && !refused)
    refuse(ErrorKind::out_of_order, state_.rank(),
           "a dispatch was refused, and this stream is being captured: end the capture and call check(), then capture");
  if (!is_captured && (in_call || !refused || order_.was_captured())) forget_refused(in_call);
  if (refused) throw DispatchRefused(*refused);
}

// Behind all that did nothing. A call has a stream. A check has none, and graphs may have run on any.
void CudaSteps::forget_refused(bool in_call) {
  if (in_call) {
    streams_.follow(state_.stream());
    state_.kernels().small.forget_refused({state_.links()}, state_.stream());
  } else {
    const SideStream stream;
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    state_.kernels().small.forget_refused({state_.links()}, stream.get());
    stream.wait();
  }
  is_stopped_ = false;
}

// The word goes to this rank's own memory, too, for its own kernels.
void CudaSteps::tell_aborted(int missing) {
  heaps_.tell_all(abort_word(0, false, heaps_.is_shared_with(missing) ? missing : plan().rank) | kAborts);
}

// Kernels that are still to run send what they send, but for those behind a refused dispatch that no call has thrown.
// On GPUs one number counts all dispatches (DeviceState::dispatched), and the number of a combine has those that
// combines took besides. The host saw no replay of a captured call. So then all that runs ends first, and the device
// has the numbers. The caller may have destroyed its streams, so none is asked.
void CudaSteps::tell_left(const CallOrder& order) {
  const DeviceScope scope(device().index);
  const bool saw_all = !order_.was_captured();
  if (!saw_all) wait_for_device();
  const DeviceState now = state_.read();
  const Epoch refused = state_.record().refused(), called = order.dispatch_ticket().message - did_nothing_;
  const bool has_stopped =
      is_stopped_ || refused != 0 || (now.refused.raw == now.dispatched.raw && now.refused.raw != taken_refusal_);
  Epoch sent = std::max(refused, now.dispatched.raw), own = now.extra.raw;
  if (saw_all && !has_stopped) {
    sent = std::max(sent, called);
    own = std::max(own, own_numbers_);
  }
  const bool combined = !has_stopped && (order_.has_combined() || sent > called);
  heaps_.tell_all(left_word({sent, sent, sent + own - (combined ? 0 : 1)}, plan().rank));
}

// Exchange::release and restore:

void CudaSteps::require_can_release() const {
  if (capture() != kNoCapture || streams_.is_captured())
    refuse(ErrorKind::out_of_order, state_.rank(),
           "release, restore and take_memory: the stream is being captured, and memory changes hands on the host; end "
           "the capture first");
}

// Graphs of this exchange may run on any stream.
void CudaSteps::finish_calls() {
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (device().finish_puts) device().finish_puts();
  poll_calls();
}

std::shared_ptr<ExchangeMemory> CudaSteps::memory() const { return std::make_shared<MemoryOf<GpuHeaps>>(heaps_.all()); }

void CudaSteps::give_back(const RankMask& mask, std::size_t bytes) {
  if (!heaps_.can_be_given_back()) return ExchangeSteps::give_back(mask, bytes);
  heaps_.give_back(mask, bytes);
}

void CudaSteps::take_again(const RankMask& mask, std::chrono::milliseconds deadline) {
  heaps_.take_again(mask, deadline);
}

}  // namespace ferry::cuda
