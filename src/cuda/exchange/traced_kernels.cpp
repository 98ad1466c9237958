// CudaSteps: the kernels that carry tokens, between those that record them where a Trace does.
#include "cuda/exchange/cuda_steps.h"
#include "ferry/detail/cuda/launch/trace_launch.h"

namespace ferry::cuda {
namespace {

TracedKernelKind kind_of(Halves halves, TracedKernelKind both, TracedKernelKind sends, TracedKernelKind receives) {
  if (halves.sends && halves.receives) return both;
  return halves.sends ? sends : receives;
}

}  // namespace

void CudaSteps::trace_to(CallTrace* call) {
  records_ = call != nullptr;
  if (!records_) return;
  if (kernel_trace_ == nullptr)
    kernel_trace_ = std::make_shared<KernelTrace>(memory_, trace_at_, device_.index, plan_.shape.ranks);
  call->note_kernels(kernel_trace_);
}

TraceParams CudaSteps::trace_params(TracedKernelKind kind) const {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(TraceClock::now().time_since_epoch());
  const bool is_captured = capture_of(stream_) != kNoCapture;
  return {kernel_trace_->records(), links_.state, links_.waited_ns, kind,
          is_captured ? 0 : static_cast<std::uint64_t>(now.count())};
}
void CudaSteps::begin_record(TracedKernelKind kind) {
  if (records_) launch_begin_record(trace_params(kind), stream_);
}
void CudaSteps::end_record(TracedKernelKind kind) {
  if (records_) launch_end_record(trace_params(kind), stream_);
}

void CudaSteps::run_dispatch(const Ticket& ticket, const std::uint8_t* masked, const DispatchArgs* in,
                             const RowsOut* out) {
  const TracedKernelKind kind =
      kind_of({.sends = in != nullptr, .receives = out != nullptr}, TracedKernelKind::dispatch,
              TracedKernelKind::dispatch_sends, TracedKernelKind::dispatch_receives);
  streams_.follow(stream_);
  begin_record(kind);
  enqueue_dispatch(ticket, masked, in, out);
  end_record(kind);
}

void CudaSteps::run_combine(const Ticket& ticket, Halves halves, const CombineArgs& in, const CombineOut* out) {
  const TracedKernelKind kind =
      kind_of(halves, TracedKernelKind::combine, TracedKernelKind::combine_sends, TracedKernelKind::combine_receives);
  streams_.follow(stream_);
  begin_record(kind);
  enqueue_combine(ticket, halves, in, out);
  end_record(kind);
}

}  // namespace ferry::cuda
