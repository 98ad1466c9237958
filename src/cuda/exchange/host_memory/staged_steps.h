// StagedSteps: the steps of a GPU rank whose caller has host memory. Every call copies its tensors to the device, runs,
// waits and copies the results back; the call throws what its kernels report.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cuda/exchange/cuda_steps.h"
#include "cuda/exchange/host_memory/host_tensors.h"

namespace ferry::cuda {

class StagedSteps final : public ExchangeSteps {
 public:
  // The device of `steps` must be current.
  // `layouts`: in each format of the exchange.
  StagedSteps(std::unique_ptr<CudaSteps> steps, std::vector<RowLayout> layouts);
  ~StagedSteps() override;

  void enter() override { steps_->enter(); }
  void leave() noexcept override { steps_->leave(); }
  void set_exchange_number(std::uint32_t number) override { steps_->set_exchange_number(number); }
  void trace_to(CallTrace* call) override { steps_->trace_to(call); }
  void start(const CallOptions& call, std::chrono::milliseconds deadline) override;

  void take_format(int format) override {
    steps_->take_format(format);
    layout_ = layouts_[static_cast<std::size_t>(format)];
  }
  void check_dispatch_input(const CheckContext& context, const DispatchInput& in, DispatchArgs& args) override {
    check_host_input(context, in, args);
  }
  void check_combine_input(const CheckContext& context, const Ticket& ticket, const CombineInput& in,
                           const CombineArgs& args) override;
  void check_sums(const CheckContext&, const Ticket&, const CombineOutput&, const CombineOut& sums) override {
    steps_->check_types_out(sums);
  }
  std::uint32_t num_rows() const override { return num_rows_; }

  std::optional<HandleFacts> read_handle(const CheckContext& context, const std::byte* handle,
                                         Operation operation) override;
  void require_handles(const CheckContext&) override {}
  const std::byte* arrival_slots() override;

  void send(const Ticket& ticket, const DispatchArgs& args) override;
  void receive(const Ticket& ticket, const RowsOut& rows) override;
  std::int64_t await_counts(const Ticket& ticket) override {
    return steps_->await_counts(on_device(HostTensors::kReplayedHandle, ticket));
  }
  RowCounts row_counts(const Ticket& ticket) const override { return steps_->row_counts(ticket); }
  void send_back(const Ticket& ticket, const CombineArgs& args) override;
  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& sums) override;
  bool fuses_halves() const override { return true; }
  void dispatch(const Ticket& ticket, const DispatchArgs& args, const RowsOut& rows) override;
  void combine(const Ticket& ticket, const CombineArgs& args, const CombineOut& sums) override;

  void poll() override { steps_->poll(); }
  void require_not_refused(bool in_call) override { steps_->require_not_refused(in_call); }
  void set_mask(const RankMask& mask) override { steps_->set_mask(mask); }
  void require_can_release() const override { steps_->require_can_release(); }
  void finish_calls() override { steps_->finish_calls(); }
  void give_back(const RankMask& mask, std::size_t bytes) override { steps_->give_back(mask, bytes); }
  void take_again(const RankMask& mask, std::chrono::milliseconds deadline) override {
    steps_->take_again(mask, deadline);
  }
  void bring_words_back() override { steps_->bring_words_back(); }
  void hold_memory() override { steps_->hold_memory(); }
  std::shared_ptr<ExchangeMemory> memory() const override { return steps_->memory(); }
  void leave_memory(bool keeps) override { steps_->leave_memory(keeps); }
  std::size_t given_back() const override { return steps_->given_back(); }
  Stats stats() const override { return steps_->stats(); }
  void tell_aborted(int missing) override { steps_->tell_aborted(missing); }
  void tell_left(const CallOrder& order) override { steps_->tell_left(order); }

 private:
  // The device tensors of a step. Copies to the device have ended.
  Ticket on_device(HostTensors::Kind kind, const Ticket& ticket);
  DispatchArgs on_device(const DispatchArgs& args);
  RowsOut on_device(const RowsOut& rows);
  CombineArgs on_device(const CombineArgs& args, int num_tokens);
  CombineOut on_device(const CombineOut& sums, int num_tokens);
  Weights on_device(HostTensors::Kind buffer, const Weights& weights, int num_tokens);
  GivenScales on_device(const GivenScales& scales, int num_tokens);
  Tensor scales_of(const RowsOut& rows) const;
  void stage_more(const RowsOut& rows, RowsOut& staged);
  void bring_more(const RowsOut& rows);
  void bring_row_scales(const RowScales& to, std::int64_t rows);
  std::byte* host_slots();
  void bring_slots(const RowsOut& rows);
  Tensor sums_of(const CombineOut& sums, int num_tokens) const;
  Tensor returned_of(const CombineOut& sums, int num_tokens) const;
  Tensor waits_of(const CombineOut& sums) const;

  void finish();  // waits for the kernels of a step, and throws what they report
  void bring(const RowsOut& rows);
  void bring(const CombineOut& sums, int num_tokens);

  std::unique_ptr<CudaSteps> steps_;
  std::vector<RowLayout> layouts_;
  RowLayout layout_;  // in the format of the newest dispatch
  HostTensors tensors_;
  cudaStream_t stream_ = nullptr;       // of the running call
  CombineArgs sent_;                    // on the device, of the newest send_back
  std::vector<std::int32_t> src_info_;  // of the newest dispatch
  std::uint32_t num_rows_ = 0;
  std::unique_ptr<std::byte[]> slots_;  // of all copies, as HeapMap::kMessages; null until somebody needs them
};

}  // namespace ferry::cuda
