#include "cuda/exchange/staged_exchange.h"

#include <fmt/core.h>

#include <cstring>

namespace ferry::cuda {
namespace {

std::size_t bytes_of(const ConstTensor& tensor) {
  return static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype);
}

// Bytes of an innermost run, and the runs of a tensor whose rows may have any stride.
struct Runs {
  std::size_t count;
  std::size_t bytes;
  std::size_t pitch;
};
Runs runs_of(const ConstTensor& tensor) {
  if (tensor.is_contiguous() || tensor.rank < 2) return {1, bytes_of(tensor), bytes_of(tensor)};
  const auto rows = static_cast<std::size_t>(tensor.shape[0]);
  return {rows, bytes_of(tensor) / rows, static_cast<std::size_t>(tensor.strides[0]) * size_of(tensor.dtype)};
}

ConstTensor contiguous_view(const ConstTensor& tensor) {
  ConstTensor view = tensor;
  std::int64_t stride = 1;
  for (int axis = tensor.rank - 1; axis >= 0; --axis) {
    view.strides[static_cast<std::size_t>(axis)] = stride;
    stride *= tensor.shape[static_cast<std::size_t>(axis)];
  }
  return view;
}

}  // namespace

StagedExchange::StagedExchange(std::unique_ptr<CudaExchange> device)
    : device_(std::move(device)), stream_(std::make_shared<MemoryStream>()) {}
StagedExchange::~StagedExchange() {
  if (device_->place().deferred_free == nullptr) return;
  inputs_.clear();
  outputs_.clear();
  device_->place().deferred_free->keep(std::move(stream_));
}

StagedExchange::Mirror StagedExchange::mirror(const ConstTensor& host, bool copy_in) const {
  Mirror made;
  const ConstTensor view = contiguous_view(host);
  const std::size_t bytes = bytes_of(host);
  made.memory = std::make_unique<StreamMemory>(*stream_, bytes + 256);
  std::memcpy(static_cast<void*>(&made.tensor), &view, sizeof made.tensor);
  made.tensor.data = made.memory->data();
  if (copy_in && bytes != 0) {
    const Runs runs = runs_of(host);
    cuda_check(cudaMemcpy2DAsync(made.tensor.data, runs.bytes, host.data, runs.pitch, runs.bytes, runs.count,
                                 cudaMemcpyHostToDevice, stream_->get()),
               "cudaMemcpy2DAsync");
  }
  return made;
}

void StagedExchange::copy_back(const Mirror& from, const Tensor& host) const {
  if (!host || bytes_of(host) == 0) return;
  const Runs runs = runs_of(host);
  cuda_check(cudaMemcpy2DAsync(host.data, runs.pitch, from.tensor.data, runs.bytes, runs.bytes, runs.count,
                               cudaMemcpyDeviceToHost, stream_->get()),
             "cudaMemcpy2DAsync");
  stream_->wait();
}

void StagedExchange::run(const CallOptions& call, const std::function<void(const CallOptions&)>& enqueue) {
  CallOptions staged = call;
  if (staged.stream == nullptr) staged.stream = stream_->get();
  stream_->wait();  // for what is copied in
  enqueue(staged);
  cuda_check(cudaStreamSynchronize(static_cast<cudaStream_t>(staged.stream)), "cudaStreamSynchronize");
  device_->check();
}

// The weights of all entries, from an array or a function, on the device.
ConstTensor StagedExchange::stage_weights(const Weights& weights, int num_tokens, std::vector<Mirror>& memory) const {
  std::vector<float> values;
  for (int token = 0; token < num_tokens; ++token)
    for (int k = 0; k < shape().top_k; ++k) values.push_back(weights.at(token, k));
  memory.push_back(mirror(ConstTensor(values.data(), DType::f32, {num_tokens, shape().top_k}), true));
  stream_->wait();
  return memory.back().tensor;
}

StagedExchange::Staged<DispatchInput> StagedExchange::stage_in(const DispatchInput& in) const {
  const CheckContext checked = context();
  const DispatchArgs args = check_dispatch_input(checked, in);
  check_topk_ids(checked, args);
  const float scale = check_input_scale(checked, in.input_scale);
  Staged<DispatchInput> staged{in, args.num_tokens, {}};
  const auto stage = [&](const ConstTensor& host) {
    staged.memory.push_back(mirror(host, true));
    return staged.memory.back().tensor;
  };
  staged.call.tokens = stage(in.tokens);
  staged.call.topk_ids = stage(in.topk_ids);
  if (in.topk_weights || in.router_weight != nullptr) {
    staged.call.topk_weights = stage_weights(args.weights, args.num_tokens, staged.memory);
    staged.call.router_weight = nullptr;
  }
  if (in.input_scale != nullptr)
    staged.call.input_scale = static_cast<const float*>(stage(ConstTensor(&scale, DType::f32, {1})).data);
  stream_->wait();  // what was copied may change, also where a later check throws
  return staged;
}

// Only now: a call that was refused leaves the round as it was, which may still need what it had.
template <class Call>
void StagedExchange::keep(Staged<Call>& staged) {
  inputs_ = std::move(staged.memory);
  num_tokens_ = staged.num_tokens;
}

DispatchOutput StagedExchange::stage_out(const DispatchOutput& out) {
  check_dispatch_output(context(), out);
  outputs_.clear();
  DispatchOutput staged = out;
  for (Tensor DispatchOutput::*member :
       {&DispatchOutput::payload, &DispatchOutput::scales, &DispatchOutput::row_offsets, &DispatchOutput::expert_ids,
        &DispatchOutput::src_info, &DispatchOutput::scales_offsets}) {
    outputs_.push_back(out.*member ? mirror(out.*member, true) : Mirror{});  // what is not written stays as it was
    (staged.*member).data = outputs_.back().tensor.data;
  }
  return staged;
}

void StagedExchange::bring_rows(const DispatchOutput& out) {
  std::size_t next = 0;
  for (Tensor DispatchOutput::*member :
       {&DispatchOutput::payload, &DispatchOutput::scales, &DispatchOutput::row_offsets, &DispatchOutput::expert_ids,
        &DispatchOutput::src_info, &DispatchOutput::scales_offsets})
    copy_back(outputs_[next++], out.*member);
  num_rows_ = static_cast<const std::uint32_t*>(out.row_offsets.data)[layout().groups];
  const auto* info = static_cast<const std::int32_t*>(out.src_info.data);
  src_info_.assign(info, info + 2 * static_cast<std::size_t>(num_rows_));
}

void StagedExchange::dispatch_async(const DispatchInput& in, const CallOptions& call) {
  const DeviceScope scope(device_->place().device);
  device_->round().require_can_dispatch(rank(), "dispatch_async");
  Staged<DispatchInput> staged_in = stage_in(in);
  run(call, [&](const CallOptions& staged) { device_->dispatch_async(staged_in.call, staged); });
  keep(staged_in);
}

void StagedExchange::dispatch_wait(const DispatchOutput& out, const CallOptions& call) {
  const DeviceScope scope(device_->place().device);
  device_->round().require_stage(rank(), "dispatch_wait", Stage::sent, "a dispatch_async");
  const DispatchOutput staged_out = stage_out(out);
  run(call, [&](const CallOptions& staged) { device_->dispatch_wait(staged_out, staged); });
  bring_rows(out);
}

void StagedExchange::dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) {
  const DeviceScope scope(device_->place().device);
  device_->round().require_can_dispatch(rank(), "dispatch");
  Staged<DispatchInput> staged_in = stage_in(in);
  const DispatchOutput staged_out = stage_out(out);
  run(call, [&](const CallOptions& staged) { device_->dispatch(staged_in.call, staged_out, staged); });
  keep(staged_in);
  bring_rows(out);
}

void StagedExchange::check_src_info(const CombineInput& in) const {
  if (!in.src_info) return;
  const auto* given = static_cast<const std::int32_t*>(in.src_info.data);
  for (std::uint32_t row = 0; row < num_rows_; ++row) {
    const std::int32_t token = src_info_[2 * static_cast<std::size_t>(row)];
    if (token >= 0)
      check_src_info_row(context(), given, row, -1, shape().max_tokens, token,
                         src_info_[2 * static_cast<std::size_t>(row) + 1]);
  }
}

StagedExchange::Staged<CombineInput> StagedExchange::stage_rows(const CombineInput& in) const {
  const CombineArgs args = check_combine_input(context(), in, num_tokens_, num_rows_);
  check_src_info(in);
  Staged<CombineInput> staged{in, num_tokens_, {}};
  staged.call.src_info = {};
  staged.memory.push_back(mirror(in.rows, true));
  staged.call.rows = staged.memory.back().tensor;
  if (in.topk_weights || in.router_weight != nullptr) {
    staged.call.topk_weights = stage_weights(args.weights, num_tokens_, staged.memory);
    staged.call.router_weight = nullptr;
  }
  stream_->wait();
  return staged;
}

CombineOutput StagedExchange::stage_sums(const CombineOutput& out) {
  check_combine_output(context(), out, num_tokens_);
  outputs_.clear();
  CombineOutput staged;
  if (out.epilogue != nullptr)
    outputs_.push_back(mirror(ConstTensor(nullptr, DType::f32, {num_tokens_, shape().hidden}), false));
  else
    outputs_.push_back(mirror(out.tokens, false));
  staged.tokens = outputs_.back().tensor;
  return staged;
}

void StagedExchange::bring_sums(const CombineOutput& out) {
  if (out.epilogue == nullptr) return copy_back(outputs_.front(), out.tokens);
  std::vector<float> sums(static_cast<std::size_t>(num_tokens_) * static_cast<std::size_t>(shape().hidden));
  copy_back(outputs_.front(), Tensor(sums.data(), DType::f32, {num_tokens_, shape().hidden}));
  for (int token = 0; token < num_tokens_; ++token)
    out.epilogue(out.epilogue_context, token, 0, sums.data() + static_cast<std::ptrdiff_t>(token) * shape().hidden,
                 shape().hidden);
}

void StagedExchange::combine_async(const CombineInput& in, const CallOptions& call) {
  const DeviceScope scope(device_->place().device);
  device_->round().require_stage(rank(), "combine_async", Stage::open, "a dispatch");
  Staged<CombineInput> staged_in = stage_rows(in);
  run(call, [&](const CallOptions& staged) { device_->combine_async(staged_in.call, staged); });
  keep(staged_in);
}

void StagedExchange::combine_wait(const CombineOutput& out, const CallOptions& call) {
  const DeviceScope scope(device_->place().device);
  device_->round().require_stage(rank(), "combine_wait", Stage::returning, "a combine_async");
  const CombineOutput staged_out = stage_sums(out);
  run(call, [&](const CallOptions& staged) { device_->combine_wait(staged_out, staged); });
  bring_sums(out);
}

void StagedExchange::combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) {
  const DeviceScope scope(device_->place().device);
  device_->round().require_stage(rank(), "combine", Stage::open, "a dispatch");
  Staged<CombineInput> staged_in = stage_rows(in);
  const CombineOutput staged_out = stage_sums(out);
  run(call, [&](const CallOptions& staged) { device_->combine(staged_in.call, staged_out, staged); });
  keep(staged_in);
  bring_sums(out);
}

}  // namespace ferry::cuda
