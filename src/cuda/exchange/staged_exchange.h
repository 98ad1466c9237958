// StagedExchange: a CudaExchange for callers with host memory. Every call copies its tensors to the device, runs, waits
// and copies the results back; what a kernel reports is thrown by the same call.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuda/exchange/cuda_exchange.h"

namespace ferry::cuda {

class StagedExchange final : public ExchangeBackend {
 public:
  // The exchange's device is current.
  explicit StagedExchange(std::unique_ptr<CudaExchange> device);
  ~StagedExchange() override;

  void dispatch_async(const DispatchInput& in, const CallOptions& call) override;
  void dispatch_wait(const DispatchOutput& out, const CallOptions& call) override;
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) override;
  void combine_async(const CombineInput& in, const CallOptions& call) override;
  void combine_wait(const CombineOutput& out, const CallOptions& call) override;
  void combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) override;
  void check() override { device_->check(); }
  void add_to_mask(const RankMask& mask) override { device_->add_to_mask(mask); }

  const Shape& shape() const override { return device_->shape(); }
  const ExchangeOptions& options() const override { return device_->options(); }
  const RowLayout& layout() const override { return device_->layout(); }
  int rank() const override { return device_->rank(); }
  std::size_t memory_bytes() const override { return device_->memory_bytes(); }
  Stats stats() const override { return device_->stats(); }

 private:
  // A host tensor's copy on the device, made contiguous.
  struct Mirror {
    std::unique_ptr<StreamMemory> memory;
    Tensor tensor;
  };
  CheckContext context() const { return {rank(), shape(), options(), layout()}; }
  Mirror mirror(const ConstTensor& host, bool copy_in) const;
  void copy_back(const Mirror& mirror, const Tensor& host) const;
  // A call with tensors on the device, and these.
  template <class Call>
  struct Staged {
    Call call;
    int num_tokens;
    std::vector<Mirror> memory;
  };
  ConstTensor stage_weights(const Weights& weights, int num_tokens, std::vector<Mirror>& memory) const;
  template <class Call>
  void keep(Staged<Call>& staged);
  Staged<DispatchInput> stage_in(const DispatchInput& in) const;
  DispatchOutput stage_out(const DispatchOutput& out);
  void bring_rows(const DispatchOutput& out);
  Staged<CombineInput> stage_rows(const CombineInput& in) const;
  CombineOutput stage_sums(const CombineOutput& out);
  void bring_sums(const CombineOutput& out);
  void check_src_info(const CombineInput& in) const;
  // Runs a call on the caller's stream, or on the own one, to its end.
  void run(const CallOptions& call, const std::function<void(const CallOptions&)>& enqueue);

  std::unique_ptr<CudaExchange> device_;
  std::shared_ptr<MemoryStream> stream_;  // of copies, and of calls without one
  std::vector<Mirror> inputs_;            // of the newest call that took some: combine_wait reads rows
  std::vector<Mirror> outputs_;
  std::vector<std::int32_t> src_info_;  // as dispatch wrote it
  std::uint32_t num_rows_ = 0;
  int num_tokens_ = 0;
};

}  // namespace ferry::cuda
