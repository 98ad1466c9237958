// CudaSteps: the steps of an exchange on a GPU. Each call enqueues the kernel that carries its tokens, and small
// kernels ahead of it and behind it. Here is their order; what each of them is for is in launches/.
#pragma once

#include <memory>
#include <optional>

#include "cuda/device/heap_memory.h"
#include "cuda/exchange/device_checks.h"
#include "cuda/exchange/launches/count_calls.h"
#include "cuda/exchange/launches/left_routing.h"
#include "cuda/exchange/launches/more_outputs.h"
#include "cuda/exchange/launches/short_handles.h"
#include "cuda/exchange/launches/token_kernels.h"
#include "cuda/exchange/order/combine_order.h"
#include "cuda/exchange/order/stream_order.h"
#include "cuda/exchange/state/exchange_heaps.h"
#include "cuda/exchange/state/exchange_state.h"
#include "exchange/exchange_steps.h"
#include "ferry/detail/cuda/launch/launch.h"

namespace ferry::cuda {

class CudaSteps final : public ExchangeSteps {
 public:
  // `device` must be current.
  CudaSteps(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
            const Launchers& launchers, GpuHeaps heaps);
  ~CudaSteps() override;

  void enter() override { scope_.emplace(device().index); }
  void leave() noexcept override { scope_.reset(); }
  void set_exchange_number(std::uint32_t number) override { routing_.set_exchange_number(number); }
  void trace_to(CallTrace* call) override { kernels_.trace_to(call); }
  void set_hooks(const HookBytes& hooks) override { state_.set_hooks(hooks); }
  void start(const CallOptions& call, std::chrono::milliseconds deadline) override;
  void start_on_host(const CallOptions& call, std::chrono::milliseconds deadline) override;

  void take_format(int format) override { state_.take_format(format); }
  void check_dispatch_input(const CheckContext&, const DispatchInput& in, DispatchArgs& args) override;
  void check_rows(const CheckContext& context, const DispatchOutput& out) override {
    checks_.check_rows(context, out);
    short_handles_.take_left(out.handle);
  }
  void check_combine_input(const CheckContext&, const Ticket&, const CombineInput& in,
                           const CombineArgs& args) override;
  void check_sums(const CheckContext&, const Ticket& ticket, const CombineOutput& out, const CombineOut& sums) override;

  // The kernels read handles, so the host knows nothing of them.
  std::optional<HandleFacts> read_handle(const CheckContext&, const std::byte*, Operation) override { return {}; }
  void require_handles(const CheckContext&) override {}
  const std::byte* arrival_slots() override { return state_.links().own + plan().map.begin(HeapMap::kMessages); }

  void send(const Ticket& ticket, const DispatchArgs& args) override;
  void receive(const Ticket& ticket, const RowsOut& rows) override;
  std::int64_t await_counts(const Ticket& ticket) override;
  RowCounts row_counts(const Ticket& ticket) const override { return counts_.row_counts(ticket); }
  void send_back(const Ticket& ticket, const CombineArgs& args) override;
  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& sums) override;
  bool fuses_halves() const override { return true; }
  void dispatch(const Ticket& ticket, const DispatchArgs& args, const RowsOut& rows) override;
  void combine(const Ticket& ticket, const CombineArgs& args, const CombineOut& sums) override;

  void poll() override;
  void require_not_refused(bool in_call) override;
  // The same, except overflow: only check() reports it.
  void poll_calls();
  void tell_aborted(int missing) override;
  void tell_left(const CallOrder& order) override;
  void set_mask(const RankMask& mask) override { state_.add_to_mask(mask); }
  void require_can_release() const override;
  void finish_calls() override;
  void give_back(const RankMask& mask, std::size_t bytes) override;
  void take_again(const RankMask& mask, std::chrono::milliseconds deadline) override;
  void bring_words_back() override { heaps_.bring_words_back(); }
  void hold_memory() override { heaps_.hold(); }
  std::shared_ptr<ExchangeMemory> memory() const override;
  void leave_memory(bool keeps) override { heaps_.leave(keeps); }
  std::size_t given_back() const override { return heaps_.given_back(); }
  Stats stats() const override { return state_.stats(); }

  // For steps over these (StagedSteps):
  void check_types_in(const CombineArgs& args) const { kernels_.require_types_in(args); }
  void check_types_out(const CombineOut& sums) const { kernels_.require_types_out(sums); }
  std::uint32_t laid_out_rows(cudaStream_t stream) const { return outputs_.laid_out_rows(stream); }
  const RankDevice& device() const { return state_.device(); }
  const Plan& plan() const { return state_.plan(); }

 private:
  CaptureId capture() const { return capture_of(state_.stream()); }
  // What goes ahead of the kernel that carries tokens, and behind it. `left`: of that kernel.
  TokensToSend begin_dispatch(const Ticket& ticket, const DispatchArgs& args);
  void end_dispatch(const Ticket& ticket, const RowsOut& rows, FinishParams left);
  void require_same_handles();
  void require_same_input_scales();
  std::optional<DispatchRefused> take_refusal();
  void forget_refused(bool in_call);
  void follow_dispatch(const Ticket& ticket);
  CombineBasis begin_combine(const Ticket& ticket, const CombineArgs& args);

  std::int64_t min_row_capacity_ = 0;  // enough for any dispatch
  bool compares_calls_ = false;        // some call told the other ranks which handle or reduction it was given (I22)
  bool is_stopped_ = false;            // kernels do nothing until they forget a dispatch that was refused
  Epoch taken_refusal_ = 0;            // the newest dispatch that was refused and whose error a call has thrown
  Epoch own_numbers_ = 0;              // that combines took (CombineNumber::own), of all that the host called
  Epoch did_nothing_ = 0;              // dispatches that did nothing because of it, of all that the host called
  ExchangeState state_;
  ExchangeHeaps heaps_;
  DeviceChecks checks_;
  StreamOrder streams_;
  CombineOrder order_;
  TokenKernels kernels_;
  LeftRouting routing_;
  ShortHandles short_handles_;
  CountCalls counts_;
  MoreOutputs outputs_;
  std::optional<DeviceScope> scope_;  // from enter() to leave()
};

}  // namespace ferry::cuda
