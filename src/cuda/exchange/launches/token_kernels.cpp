#include "cuda/exchange/launches/token_kernels.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/debug_log.h"
#include "cuda/device/refuse.h"
#include "cuda/exchange/order/stream_order.h"
#include "cuda/policy/policy_text.h"
#include "ferry/detail/cuda/launch/trace_launch.h"
#include "ferry/detail/cuda/steps/scale_tiles.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {
namespace {

template <class Policy>
void log_launch(int rank, const char* kernel, int num_tokens, const Policy& policy) {
  debug_log(DebugLevel::trace, rank, [&] {
    std::ostringstream text;
    text << kernel << " kernel, " << num_tokens << " tokens: " << policy;
    return text.str();
  });
}

TracedKernelKind kind_of(Halves halves, TracedKernelKind both, TracedKernelKind sends, TracedKernelKind receives) {
  if (halves.sends && halves.receives) return both;
  return halves.sends ? sends : receives;
}

DispatchKernel kernel_of(const TokensToSend* in, const RowsOut* out) {
  if (in != nullptr) return in->args.is_encoded() ? DispatchKernel::given_rows : DispatchKernel::encodes;
  return out->order != RowOrder::by_expert || out->may_overflow ? DispatchKernel::receives : DispatchKernel::encodes;
}

// Rows or bias, or sums where they are given, are f16. Such combines have kernels of their own.
bool has_f16(const CombineArgs& in, const CombineOut* out) {
  const bool has_bias = out != nullptr && in.num_bias != 0 && in.bias[0].dtype == DType::f16;
  return in.dtype == DType::f16 || has_bias || (out != nullptr && out->dtype == DType::f16);
}

}  // namespace

TokenKernels::TokenKernels(const ExchangeState& state)
    : state_(state), block_counts_(state.memory()->as<DeviceWord<Epoch>>(state.state_plan().block_counts)) {}

FinishParams TokenKernels::dispatch(const Ticket& ticket, const std::uint8_t* masked, const TokensToSend* in,
                                    const RowsOut* out) {
  dispatched_ = kind_of({.sends = in != nullptr, .receives = out != nullptr}, TracedKernelKind::dispatch,
                        TracedKernelKind::dispatch_sends, TracedKernelKind::dispatch_receives);
  begin_record(dispatched_);
  return launch_dispatch(ticket, masked, in, out);
}

void TokenKernels::finish_dispatch(FinishParams left, const RowsOut* out) {
  const KernelPlan& plan = state_.format().kernel_plan;
  const FinishGrid grid{.small_blocks = state_.most_small_blocks(),
                        .scales_blocks = plan.scales_limits(state_.max_blocks()).blocks(),
                        .pdl = plan.is_exclusive()};
  const ReceiveLaunchers& kernels = state_.kernels().receive;
  if (out != nullptr && awaits_lists(*out)) {  // own lists leave before; what says how long ranks waited comes behind
    FinishParams own_lists;
    own_lists.lists = left.lists;
    own_lists.has_lists = std::exchange(left.has_lists, false);
    kernels.finish(own_lists, grid, state_.stream());
    kernels.await_lists(left.lists, state_.stream());
  }
  kernels.finish(left, grid, state_.stream());
  end_record(dispatched_);
}

void TokenKernels::combine(const Ticket& ticket, const CombineBasis& basis, Halves halves, const CombineArgs& in,
                           const CombineOut* out) {
  const TracedKernelKind kind =
      kind_of(halves, TracedKernelKind::combine, TracedKernelKind::combine_sends, TracedKernelKind::combine_receives);
  begin_record(kind);
  launch_combine(ticket, basis, halves, in, out);
  end_record(kind);
}

// What the parameters of both kernels have.
template <class Params>
Params TokenKernels::params_of(const std::uint8_t* masked, Halves halves) const {
  auto params = state_.params_of<Params>(masked);
  params.sends = halves.sends;
  params.receives = halves.receives;
  params.dispatch_call = state_.dispatch_call();
  params.arrived = state_.arrived();
  params.stats = state_.counters();
  params.step_times = records_ ? &trace_->records().steps() : nullptr;
  return params;
}

DispatchParams TokenKernels::dispatch_params(const Ticket& ticket, const std::uint8_t* masked,
                                             const DispatchLaunch& launch, const TokensToSend* in,
                                             const RowsOut* out) const {
  auto params = params_of<DispatchParams>(masked, {.sends = in != nullptr, .receives = out != nullptr});
  if (in != nullptr) {
    params.in = in->args;
    params.replay = in->replay;
  }
  if (out != nullptr) params.out = *out;
  const bool is_aligned = ticket.rows.order == RowOrder::by_expert || ticket.rows.order == RowOrder::in_place;
  if (ticket.handle != nullptr && is_aligned) params.aligned_by = kept_routing_at(params.plan, ticket.handle).header;
  params.in.shared_begin = ticket.shared.begin;
  params.in.shared_end = ticket.shared.end;
  params.links.backs_off = launch.backs_off;
  params.routing = {.record = state_.links().record,
                    .state = state_.links().state,
                    .is_replay = ticket.handle != nullptr,
                    .counts_all = launch.counts_all,
                    .excess = in != nullptr ? in->excess : 0,
                    .words = state_.format().kernel_plan.routing_words(),
                    .parts = launch.parts,
                    .parts_per_routing_block = launch.parts_per_routing_block,
                    .block_counts = block_counts_};
  params.compares_scales = state_.compares_scales();
  params.tells_scale = params.compares_scales && in != nullptr && state_.format().uses_input_scale;
  params.num_experts = state_.num_experts();
  params.roles = launch.policy.roles;
  params.block_bytes = launch.block_bytes;
  if (params.out.scales.layout == ScaleLayout::none) params.out.stores_scales = false;  // at strides, or none
  return params;
}

FinishParams TokenKernels::launch_dispatch(const Ticket& ticket, const std::uint8_t* masked, const TokensToSend* in,
                                           const RowsOut* out) const {
  const ExchangeKernels& kernels = state_.kernels();
  const DispatchKernel which = kernel_of(in, out);
  const RowOrder order = out != nullptr ? out->order : RowOrder::by_expert;
  const DispatchLaunch launch = state_.format().kernel_plan.dispatch(
      ticket.num_tokens, {.sends = in != nullptr, .receives = out != nullptr}, which, order, state_.max_blocks());
  DispatchParams params = dispatch_params(ticket, masked, launch, in, out);
  log_launch(state_.rank(), "dispatch", ticket.num_tokens, launch.policy);
  FinishParams left;
  left.lists = {params.plan, params.links, in != nullptr ? in->args.num_tokens : 0, state_.counters().bytes};
  left.has_lists = in != nullptr && !launch.lists_tokens && state_.plan().map.has_token_lists();
  if (which == DispatchKernel::receives) {
    kernels.receive.receive(params, launch.policy, state_.stream());
  } else {
    left.has_scales = launch.scales_follow && out != nullptr && params.out.stores_scales && out->src_info != nullptr;
    if (left.has_scales) {
      left.scales = scales_params(*out);
      params.out.stores_scales = false;
    }
    const DispatchLauncher& launcher = which == DispatchKernel::given_rows ? kernels.given_rows : kernels.dispatch;
    launcher.launch(params, launch.policy, state_.stream());
  }
  pad_masked(ticket, masked, out);
  return left;
}

// I22: rows of a replay whose sources are masked by now.
void TokenKernels::pad_masked(const Ticket& ticket, const std::uint8_t* masked, const RowsOut* out) const {
  if (ticket.handle == nullptr || masked == nullptr || out == nullptr) return;
  auto params = state_.local_params_of<PadMaskedParams>(masked);
  params.starts = state_.arrived().starts;
  params.out = *out;
  launch_pad_masked(params, state_.most_small_blocks(), state_.stream());
}

// I15: rows by_source need the lists and wait for them in the kernel that lays them out.
bool TokenKernels::awaits_lists(const RowsOut& out) const {
  const HeapMap& map = state_.plan().map;
  return map.has_token_lists() && map.has_remote_ranks() && out.order != RowOrder::by_source;
}

// I20
ScalesParams TokenKernels::scales_params(const RowsOut& out) const {
  auto params = state_.local_params_of<ScalesParams>(nullptr);
  params.scales = out.scales;
  params.by_strips = Divider(scale_strips(out.scales));
  params.src_info = out.src_info;
  params.payload_bytes = out.row_bytes;
  params.starts = state_.arrived().starts.of_source;
  return params;
}

CombineCode TokenKernels::code_of(const CombineBasis& basis) const {
  if (state_.plan().map.has_weights_beside_results()) return CombineCode::weighed;
  return basis.is_extra ? CombineCode::kept : CombineCode::plain;
}

void TokenKernels::launch_combine(const Ticket& ticket, const CombineBasis& basis, Halves halves, const CombineArgs& in,
                                  const CombineOut* out) const {
  auto params = params_of<CombineParams>(basis.masked, halves);
  params.plan.exact = in.exact;
  params.in = in;
  params.is_extra = basis.is_extra;
  params.arrived = basis.arrived;
  params.own = basis.own;
  params.code = code_of(basis);
  params.header = basis.header;
  params.by_source = ticket.rows.order == RowOrder::by_source;
  params.late_tokens = ticket.num_tokens < 0 ? given_weights_ : ticket.num_tokens;
  if (in.num_rows == 0) {  // a kernel that needs rows reads valid memory, and reports the error
    params.in.rows = state_.links().own;
    params.in.row_stride = 0;
    params.in.dtype = DType::bf16;
  }
  if (out != nullptr) params.out = *out;
  params.num_tokens = std::max(0, ticket.num_tokens);
  const int likely_tokens = ticket.num_tokens < 0 ? state_.plan().shape.max_tokens : ticket.num_tokens;
  const SumTypes types{params.in.dtype == DType::f32, has_f16(params.in, out)};
  const KernelPlan& plan = state_.format().kernel_plan;
  const RowOrder order = basis.header != nullptr ? plan.likely_order() : ticket.rows.order;
  const CombineLaunch launch = plan.combine(likely_tokens, halves, types, in.exact, order, state_.max_blocks());
  params.links.backs_off = launch.backs_off;
  params.roles = launch.policy.roles;
  log_launch(state_.rank(), "combine", ticket.num_tokens, launch.policy);
  const CombineLauncher& kernel = types.has_f16 ? *state_.kernels().f16_combine : state_.kernels().combine;
  kernel.launch(params, launch.policy, launch.shared_bytes, state_.stream());
}

void TokenKernels::require_f16(bool wanted, const char* name) const {
  if (!wanted || state_.kernels().f16_combine != nullptr) return;
  refuse(ErrorKind::unsupported, state_.rank(),
         "{} is f16; the kernels of this exchange, which a program compiled, know bf16 and f32 in combine. Give one of "
         "these, or use kernels without hooks and with results in a format of the library",
         name);
}

void TokenKernels::require_types_in(const CombineArgs& args) const {
  require_f16(args.dtype == DType::f16, "rows");
  require_f16(args.num_bias != 0 && args.bias[0].dtype == DType::f16, "bias");
}

void TokenKernels::require_types_out(const CombineOut& sums) const { require_f16(sums.dtype == DType::f16, "tokens"); }

// Where a handle lies on the device, its number of tokens is not known here yet. A kernel stores as many weights as
// there are, so they must fit.
void TokenKernels::take_given(const ConstTensor& topk_weights) {
  const int max_tokens = state_.plan().shape.max_tokens;
  const std::int64_t given = topk_weights ? topk_weights.shape[0] : 0;
  if (given > max_tokens)
    refuse(ErrorKind::invalid_argument, state_.rank(),
           "topk_weights has {} rows; it must have those of the handle's dispatch, at most max_tokens, {}", given,
           max_tokens);
  given_weights_ = static_cast<int>(given);
}

void TokenKernels::trace_to(CallTrace* call) {
  records_ = call != nullptr;
  if (!records_) return;
  if (trace_ == nullptr)
    trace_ = std::make_shared<KernelTrace>(state_.memory(), state_.state_plan().trace, state_.device().index,
                                           state_.plan().shape.ranks);
  call->note_kernels(trace_);
}

void TokenKernels::finish_trace() noexcept {
  if (trace_ != nullptr) trace_->finish();
}

TraceParams TokenKernels::trace_params(TracedKernelKind kind) const {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(TraceClock::now().time_since_epoch());
  const bool is_captured = capture_of(state_.stream()) != kNoCapture;
  return {trace_->records(), state_.links().state, state_.links().waited_ns, kind,
          is_captured ? 0 : static_cast<std::uint64_t>(now.count())};
}
void TokenKernels::begin_record(TracedKernelKind kind) const {
  if (records_) launch_begin_record(trace_params(kind), state_.stream());
}
void TokenKernels::end_record(TracedKernelKind kind) const {
  if (records_) launch_end_record(trace_params(kind), state_.stream());
}

}  // namespace ferry::cuda
