// What lies between two copies is the exchange alone.
#include "tool/ranks/cuda/gpu_calls.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "cuda/exchange/host_memory/host_tensors.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "tool/text/human.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;
using cuda::HostTensors;

void require_device_memory(int device, std::size_t bytes) {
  std::size_t left = 0, total = 0;
  cuda_check(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
  if (bytes > left)
    throw Error(ErrorKind::system, fmt::format("the tensors of a rank need {} of the memory of GPU {}, and {} are "
                                               "available: take fewer tokens in a round, or more ranks",
                                               human_bytes(bytes), device, human_bytes(left)));
}

class GpuCalls final : public RankCalls {
 public:
  // The device is current.
  GpuCalls(int device, const RowLayout& layout) : device_(device), layout_(layout) {}

  void give(const DispatchInput& in, const DispatchOutput& out) override {
    const cuda::DeviceScope scope(device_);
    dispatch_in_ = in;
    dispatch_in_.tokens = tensors_.copy_in(HostTensors::kTokens, in.tokens);
    if (in.token_scales) dispatch_in_.token_scales = tensors_.copy_in(HostTensors::kTokenScales, in.token_scales);
    dispatch_in_.topk_ids = tensors_.copy_in(HostTensors::kTopkIds, in.topk_ids);
    dispatch_in_.topk_weights = tensors_.copy_in(HostTensors::kTopkWeights, in.topk_weights);
    if (in.input_scale != nullptr)
      dispatch_in_.input_scale = static_cast<const float*>(
          tensors_.copy_in(HostTensors::kInputScale, ConstTensor(in.input_scale, DType::f32, {1})).data);
    rows_ = out;
    for (const HostTensors::Output& output : HostTensors::kOutputs)
      dispatch_out_.*output.field = tensors_.buffer_for(output.kind, out.*output.field);
    tensors_.wait();
  }

  void dispatch(Exchange& exchange) override {
    const cuda::DeviceScope scope(device_);
    exchange.dispatch(dispatch_in_, dispatch_out_, {.stream = tensors_.stream()});
    tensors_.wait();
  }

  const DispatchOutput& arrived() const override { return dispatch_out_; }

  // Only rows that are there: the rest of the worst case stays untouched on the host.
  void take_rows() override {
    const cuda::DeviceScope scope(device_);
    tensors_.copy_out_rows(rows_, layout_);
  }

  void take_routing() override {
    const cuda::DeviceScope scope(device_);
    tensors_.copy_out_routing(rows_, layout_);
    tensors_.wait();
  }

  ConstTensor carry_in(const ConstTensor& rows, std::int64_t num_rows) override {
    const cuda::DeviceScope scope(device_);
    return tensors_.copy_in_rows(HostTensors::kRows, rows, num_rows);
  }

  void give(const CombineInput& in, const CombineOutput& out) override {
    const cuda::DeviceScope scope(device_);
    combine_in_ = in;
    combine_in_.topk_weights = tensors_.copy_in(HostTensors::kTopkWeights, in.topk_weights);
    sums_ = out.tokens;
    combine_out_.tokens = tensors_.buffer_for(HostTensors::kSums, out.tokens);
    tensors_.wait();
  }

  void combine(Exchange& exchange) override {
    const cuda::DeviceScope scope(device_);
    exchange.combine(combine_in_, combine_out_, {.stream = tensors_.stream()});
    tensors_.wait();
  }

  void take_sums() override {
    const cuda::DeviceScope scope(device_);
    tensors_.copy_out(HostTensors::kSums, sums_);
    tensors_.wait();
  }

  // A kernel's error is thrown by the next call, so a call without tokens follows the last round.
  void finish(Exchange& exchange) override {
    const cuda::DeviceScope scope(device_);
    DispatchInput nothing = dispatch_in_;
    for (ConstTensor* tensor : {&nothing.tokens, &nothing.topk_ids, &nothing.topk_weights}) tensor->shape[0] = 0;
    exchange.dispatch_async(nothing, {.stream = tensors_.stream()});
    tensors_.wait();
  }

 private:
  int device_;
  RowLayout layout_;
  HostTensors tensors_;
  DispatchInput dispatch_in_;
  DispatchOutput rows_, dispatch_out_;
  CombineInput combine_in_;
  Tensor sums_;
  CombineOutput combine_out_;
};

}  // namespace

std::unique_ptr<RankCalls> make_gpu_calls(int device, const Shape& shape, const RowLayout& layout, RowOrder order) {
  const cuda::DeviceScope scope(device);
  require_device_memory(device, HostTensors::most_bytes(shape, layout, order));
  return std::make_unique<GpuCalls>(device, layout);
}

}  // namespace ferry::app
