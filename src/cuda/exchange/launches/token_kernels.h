// TokenKernels: launches the two large kernels, which carry tokens, and what is left of a dispatch behind its own.
// It chooses the kernel and its blocks for each call, and records it where a Trace does.
#pragma once

#include <memory>

#include "cuda/exchange/launches/combine_basis.h"
#include "cuda/exchange/state/exchange_state.h"
#include "cuda/exchange/state/kernel_trace.h"
#include "exchange/calls/call_order.h"
#include "ferry/detail/cuda/state/trace_records.h"
#include "ferry/tensor.h"

namespace ferry::cuda {

// What the sending half of a dispatch is given.
struct TokensToSend {
  DispatchArgs args;
  HandleCheck replay;        // DispatchParams::replay
  std::uint32_t excess = 0;  // RoutingArgs::excess
};

class TokenKernels {
 public:
  explicit TokenKernels(const ExchangeState& state);

  // The halves of a dispatch that are given: `in` sends, `out` receives. Returns what is left of them, to which others
  // add, and which finish_dispatch launches.
  FinishParams dispatch(const Ticket& ticket, const std::uint8_t* masked, const TokensToSend* in, const RowsOut* out);
  void finish_dispatch(FinishParams left, const RowsOut* out);
  // The sending half alone.
  void send(const Ticket& ticket, const std::uint8_t* masked, const TokensToSend& in) {
    finish_dispatch(dispatch(ticket, masked, &in, nullptr), nullptr);
  }
  // One kernel runs both halves. Otherwise the half that receives has a kernel of its own.
  static bool can_fuse(const RowsOut& out) { return !out.may_overflow; }
  // `out`: of the half that receives.
  void combine(const Ticket& ticket, const CombineBasis& basis, Halves halves, const CombineArgs& in,
               const CombineOut* out);

  // Refuse rows, bias and sums of types that these kernels do not know (I17).
  void require_types_in(const CombineArgs& args) const;
  void require_types_out(const CombineOut& sums) const;

  // The weights that the next combine is given. Throws where there are more than any dispatch has.
  void take_given(const ConstTensor& topk_weights);

  void trace_to(CallTrace* call);
  // The exchange is about to give its memory up.
  void finish_trace() noexcept;

 private:
  template <class Params>
  Params params_of(const std::uint8_t* masked, Halves halves) const;
  DispatchParams dispatch_params(const Ticket& ticket, const std::uint8_t* masked, const DispatchLaunch& launch,
                                 const TokensToSend* in, const RowsOut* out) const;
  FinishParams launch_dispatch(const Ticket& ticket, const std::uint8_t* masked, const TokensToSend* in,
                               const RowsOut* out) const;
  void launch_combine(const Ticket& ticket, const CombineBasis& basis, Halves halves, const CombineArgs& in,
                      const CombineOut* out) const;
  ScalesParams scales_params(const RowsOut& out) const;
  void pad_masked(const Ticket& ticket, const std::uint8_t* masked, const RowsOut* out) const;
  bool awaits_lists(const RowsOut& out) const;
  CombineCode code_of(const CombineBasis& basis) const;
  void require_f16(bool wanted, const char* name) const;
  void begin_record(TracedKernelKind kind) const;
  void end_record(TracedKernelKind kind) const;
  TraceParams trace_params(TracedKernelKind kind) const;

  const ExchangeState& state_;
  DeviceWord<Epoch>* block_counts_;
  int given_weights_ = 0;                                     // tokens of the weights of the next combine
  std::shared_ptr<KernelTrace> trace_;                        // from the first call on that a Trace records
  bool records_ = false;                                      // the call under way
  TracedKernelKind dispatched_ = TracedKernelKind::dispatch;  // by the newest kernel of one
};

}  // namespace ferry::cuda
