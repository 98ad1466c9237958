#include "cuda/exchange/host_memory/staged_steps.h"

#include <algorithm>
#include <utility>

#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
namespace {

// Rows of `columns` elements at any stride.
template <class Byte>
BasicTensor<Byte> rows_tensor(Byte* data, DType dtype, std::int64_t rows, std::int64_t columns,
                              std::int64_t row_bytes) {
  BasicTensor<Byte> tensor(data, dtype, {rows, columns});
  tensor.strides[0] = row_bytes / static_cast<std::int64_t>(size_of(dtype));
  return tensor;
}

DType dtype_of_ids(const RowsOut& rows) { return rows.has_i64_ids ? DType::i64 : DType::i32; }

}  // namespace

StagedSteps::StagedSteps(std::unique_ptr<CudaSteps> steps, std::vector<RowLayout> layouts)
    : ExchangeSteps(steps->shared_end()),
      steps_(std::move(steps)),
      layouts_(std::move(layouts)),
      layout_(layouts_.front()) {}

StagedSteps::~StagedSteps() {
  if (steps_->device().deferred_free != nullptr) tensors_.free_with(*steps_->device().deferred_free);
}

void StagedSteps::start(const CallOptions& call, std::chrono::milliseconds deadline) {
  CallOptions staged = call;
  if (staged.stream == nullptr) staged.stream = tensors_.stream();
  stream_ = static_cast<cudaStream_t>(staged.stream);
  steps_->start(staged, deadline);
}

std::optional<HandleFacts> StagedSteps::read_handle(const CheckContext& context, const std::byte* handle, Operation) {
  return check_handle(context, steps_->plan(), handle, HandleOf::gpu);
}

// src_info is that of the newest dispatch: with a handle it says nothing, and nothing where that dispatch left it out.
void StagedSteps::check_combine_input(const CheckContext& context, const Ticket& ticket, const CombineInput& in,
                                      const CombineArgs& args) {
  steps_->check_types_in(args);
  if (!in.src_info || ticket.handle != nullptr) return;
  const auto* given = static_cast<const std::int32_t*>(in.src_info.data);
  for (std::uint32_t row = 0; row < src_info_.size() / 2; ++row) {
    const std::int32_t token = src_info_[2 * static_cast<std::size_t>(row)];
    if (ticket.rows.order == RowOrder::by_source)
      check_source_info_row(context, given, row, src_info_[2 * static_cast<std::size_t>(row) + 1], token);
    else if (token >= 0)
      check_src_info_row(context, given, row, -1, context.shape.max_tokens, token,
                         src_info_[2 * static_cast<std::size_t>(row) + 1]);
  }
}

// The weights of all entries, from an array or a function. Waits, since it collects them in memory of its own.
Weights StagedSteps::on_device(HostTensors::Kind buffer, const Weights& weights, int num_tokens) {
  if (weights.data == nullptr && weights.hook == nullptr) return weights;
  std::vector<float> values;
  for (int token = 0; token < num_tokens; ++token)
    for (int k = 0; k < weights.top_k; ++k) values.push_back(weights.at(token, k));
  const ConstTensor host(values.data(), DType::f32, {num_tokens, weights.top_k});
  const Tensor device = tensors_.copy_in(buffer, host);
  tensors_.wait();
  return {static_cast<const float*>(device.data), nullptr, nullptr, weights.top_k};
}

// Side by side, since they may come at any strides. Waits, since it collects them in memory of its own.
GivenScales StagedSteps::on_device(const GivenScales& scales, int num_tokens) {
  if (scales.count == 0) return scales;
  std::vector<std::byte> together;
  for (int token = 0; token < num_tokens; ++token)
    for (int i = 0; i < scales.count; ++i) {
      const std::byte* from = scales.data + token * scales.token_stride + i * scales.scale_stride;
      together.insert(together.end(), from, from + scales.bytes);
    }
  const std::int64_t token_bytes = std::int64_t{scales.count} * scales.bytes;
  const ConstTensor host(together.data(), DType::u8, {num_tokens, token_bytes});
  const Tensor device = tensors_.copy_in(HostTensors::kTokenScales, host);
  tensors_.wait();
  return {static_cast<const std::byte*>(device.data), token_bytes, scales.bytes, scales.bytes, scales.count};
}

Ticket StagedSteps::on_device(HostTensors::Kind kind, const Ticket& ticket) {
  if (ticket.handle == nullptr) return ticket;
  Ticket staged = ticket;
  const Tensor device = tensors_.copy_in(kind, ConstTensor(ticket.handle, DType::u8, {layout_.handle_bytes}));
  staged.handle = static_cast<const std::byte*>(device.data);
  tensors_.wait();
  return staged;
}

DispatchArgs StagedSteps::on_device(const DispatchArgs& args) {
  DispatchArgs staged = args;
  const std::int64_t columns = args.row_bytes / static_cast<std::int64_t>(size_of(args.dtype));
  const ConstTensor tokens =
      rows_tensor<const void>(args.tokens, args.dtype, args.num_tokens, columns, args.row_stride);
  staged.tokens = static_cast<const std::byte*>(tensors_.copy_in(HostTensors::kTokens, tokens).data);
  staged.row_stride = args.row_bytes;
  staged.scales = on_device(args.scales, args.num_tokens);
  if (args.global_scales != nullptr) {
    const ConstTensor scales(args.global_scales, DType::f32, {args.num_tokens});
    staged.global_scales = static_cast<const float*>(tensors_.copy_in(HostTensors::kTokenGlobalScales, scales).data);
  }
  const ConstTensor ids(args.ids.data, args.ids.is_i64 ? DType::i64 : DType::i32, {args.num_tokens, layout_.top_k});
  if (args.ids.data != nullptr) staged.ids.data = tensors_.copy_in(HostTensors::kTopkIds, ids).data;
  if (args.expert_counts != nullptr) {
    const ConstTensor counts(args.expert_counts, DType::i32, {steps_->plan().shape.experts});
    staged.expert_counts = static_cast<const std::int32_t*>(tensors_.copy_in(HostTensors::kExpertCounts, counts).data);
  }
  staged.weights = on_device(HostTensors::kTopkWeights, args.weights, args.num_tokens);
  tensors_.wait();
  return staged;
}

Tensor StagedSteps::scales_of(const RowsOut& rows) const {
  const std::vector<std::int64_t> shape = layout_.scales_shape(rows.row_capacity, rows.order, rows.expert_stride);
  return {rows.scales.base, layout_.scale_dtype, std::span(shape)};
}

// Outputs are copied to the device as well, since a step leaves what it does not write.
RowsOut StagedSteps::on_device(const RowsOut& rows) {
  const std::int64_t capacity = rows.row_capacity;
  const auto stage = [&](HostTensors::Kind kind, auto* host, DType dtype, std::initializer_list<std::int64_t> shape) {
    if (host == nullptr) return host;
    return static_cast<decltype(host)>(tensors_.copy_in(kind, ConstTensor(host, dtype, shape)).data);
  };
  RowsOut staged = rows;
  staged.payload = stage(HostTensors::kPayload, rows.payload, DType::u8, {capacity, layout_.payload_row_bytes});
  if (rows.scales.base != nullptr)
    staged.scales.base = static_cast<std::byte*>(tensors_.copy_in(HostTensors::kScales, scales_of(rows)).data);
  staged.row_offsets = stage(HostTensors::kRowOffsets, rows.row_offsets, DType::u32, {layout_.groups + 1});
  staged.expert_ids = stage(HostTensors::kExpertIds, rows.expert_ids, DType::i32, {layout_.groups});
  staged.src_info = stage(HostTensors::kSrcInfo, rows.src_info, DType::i32, {capacity, 2});
  staged.handle = stage(HostTensors::kLeftHandle, rows.handle, DType::u8, {layout_.handle_bytes});
  staged.scales_offsets = stage(HostTensors::kScalesOffsets, rows.scales_offsets, DType::u32, {layout_.groups});
  staged.counts = stage(HostTensors::kCounts, rows.counts, DType::i32, {layout_.groups});
  staged.row_topk_ids =
      stage(HostTensors::kRowTopkIds, rows.row_topk_ids, dtype_of_ids(rows), {capacity, layout_.top_k});
  staged.row_topk_weights =
      stage(HostTensors::kRowTopkWeights, rows.row_topk_weights, DType::f32, {capacity, layout_.top_k});
  staged.source_offsets = stage(HostTensors::kSourceOffsets, rows.source_offsets, DType::u32, {layout_.sources + 1});
  stage_more(rows, staged);
  tensors_.wait();
  return staged;
}

void StagedSteps::bring(const RowsOut& rows) {
  const std::int64_t capacity = rows.row_capacity;
  tensors_.copy_out(HostTensors::kPayload, Tensor(rows.payload, DType::u8, {capacity, layout_.payload_row_bytes}));
  tensors_.copy_out(HostTensors::kScales, scales_of(rows));
  tensors_.copy_out(HostTensors::kRowOffsets, Tensor(rows.row_offsets, DType::u32, {layout_.groups + 1}));
  tensors_.copy_out(HostTensors::kExpertIds, Tensor(rows.expert_ids, DType::i32, {layout_.groups}));
  tensors_.copy_out(HostTensors::kSrcInfo, Tensor(rows.src_info, DType::i32, {capacity, 2}));
  tensors_.copy_out(HostTensors::kLeftHandle, Tensor(rows.handle, DType::u8, {layout_.handle_bytes}));
  tensors_.copy_out(HostTensors::kScalesOffsets, Tensor(rows.scales_offsets, DType::u32, {layout_.groups}));
  tensors_.copy_out(HostTensors::kCounts, Tensor(rows.counts, DType::i32, {layout_.groups}));
  tensors_.copy_out(HostTensors::kRowTopkIds, Tensor(rows.row_topk_ids, dtype_of_ids(rows), {capacity, layout_.top_k}));
  tensors_.copy_out(HostTensors::kRowTopkWeights, Tensor(rows.row_topk_weights, DType::f32, {capacity, layout_.top_k}));
  tensors_.copy_out(HostTensors::kSourceOffsets, Tensor(rows.source_offsets, DType::u32, {layout_.sources + 1}));
  bring_more(rows);
  tensors_.wait();
  num_rows_ = rows.order == RowOrder::by_source ? rows.source_offsets[layout_.sources]
              : rows.row_offsets != nullptr     ? rows.row_offsets[layout_.groups]
                                                : steps_->laid_out_rows(tensors_.stream());
  num_rows_ = static_cast<std::uint32_t>(std::min<std::int64_t>(num_rows_, capacity));  // the others had no room
  src_info_.clear();
  if (rows.src_info != nullptr)
    src_info_.assign(rows.src_info, rows.src_info + 2 * static_cast<std::size_t>(num_rows_));
  if (rows.order == RowOrder::in_place) bring_slots(rows);
}

CombineArgs StagedSteps::on_device(const CombineArgs& args, int num_tokens) {
  CombineArgs staged = args;
  const ConstTensor rows =
      rows_tensor<const void>(args.rows, args.dtype, std::int64_t{args.num_rows}, layout_.hidden, args.row_stride);
  staged.rows = static_cast<const std::byte*>(tensors_.copy_in(HostTensors::kRows, rows).data);
  staged.row_stride = layout_.hidden * static_cast<std::int64_t>(size_of(args.dtype));
  staged.weights = on_device(HostTensors::kWeightsOfCombine, args.weights, num_tokens);
  for (int i = 0; i < args.num_bias; ++i) {
    const Bias& bias = args.bias[i];
    const auto host = rows_tensor<const void>(bias.data, bias.dtype, num_tokens, layout_.hidden, bias.token_bytes);
    const auto kind = i == 0 ? HostTensors::kBias : HostTensors::kSecondBias;
    staged.bias[i] = {static_cast<const std::byte*>(tensors_.copy_in(kind, host).data),
                      layout_.hidden * static_cast<std::int64_t>(size_of(bias.dtype)), bias.dtype};
  }
  if (args.num_row_weights != 0) {
    const std::int64_t of_row = args.has_row_weights_of_k ? layout_.top_k : 1;
    const ConstTensor host(args.row_weights, DType::f32, {args.num_row_weights, of_row});
    staged.row_weights = static_cast<const float*>(tensors_.copy_in(HostTensors::kReturningWeights, host).data);
  }
  tensors_.wait();
  return staged;
}

Tensor StagedSteps::returned_of(const CombineOut& sums, int num_tokens) const {
  if (sums.weights == nullptr) return {};
  return {sums.weights, DType::f32, {num_tokens, layout_.top_k}};
}

Tensor StagedSteps::waits_of(const CombineOut& sums) const { return {sums.waited_ns, DType::i64, {layout_.sources}}; }

// The caller's sums, or float32 sums for an epilogue, which runs on the host.
Tensor StagedSteps::sums_of(const CombineOut& sums, int num_tokens) const {
  if (sums.epilogue != nullptr) return {nullptr, DType::f32, {num_tokens, layout_.hidden}};
  if (sums.unreduced) return {sums.tokens, sums.dtype, {num_tokens, sent_.weights.top_k, layout_.hidden}};
  return rows_tensor<void>(sums.tokens, sums.dtype, num_tokens, layout_.hidden, sums.token_bytes);
}

CombineOut StagedSteps::on_device(const CombineOut& sums, int num_tokens) {
  const Tensor device = tensors_.buffer_for(HostTensors::kSums, sums_of(sums, num_tokens));
  CombineOut staged;
  staged.tokens = static_cast<std::byte*>(device.data);
  staged.dtype = device.dtype;
  staged.token_bytes = device.strides[0] * static_cast<std::int64_t>(size_of(device.dtype));
  staged.unreduced = sums.unreduced;
  const Tensor weights = tensors_.buffer_for(HostTensors::kReturnedWeights, returned_of(sums, num_tokens));
  staged.weights = static_cast<float*>(weights.data);
  if (sums.waited_ns != nullptr)
    staged.waited_ns = static_cast<std::int64_t*>(tensors_.copy_in(HostTensors::kCombineWaits, waits_of(sums)).data);
  tensors_.wait();
  return staged;
}

void StagedSteps::bring(const CombineOut& sums, int num_tokens) {
  Tensor host = sums_of(sums, num_tokens);
  std::vector<float> values;
  if (sums.epilogue != nullptr) {
    values.resize(static_cast<std::size_t>(num_tokens) * static_cast<std::size_t>(layout_.hidden));
    host.data = values.data();
  }
  tensors_.copy_out(HostTensors::kSums, host);
  tensors_.copy_out(HostTensors::kReturnedWeights, returned_of(sums, num_tokens));
  if (sums.waited_ns != nullptr) tensors_.copy_out(HostTensors::kCombineWaits, waits_of(sums));
  tensors_.wait();
  for (int token = 0; sums.epilogue != nullptr && token < num_tokens; ++token)
    sums.epilogue(sums.context, token, 0, values.data() + static_cast<std::ptrdiff_t>(token) * layout_.hidden,
                  layout_.hidden);
}

void StagedSteps::finish() {
  cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  steps_->poll_calls();
  steps_->require_not_refused(true);
}

void StagedSteps::send(const Ticket& ticket, const DispatchArgs& args) {
  steps_->send(on_device(HostTensors::kReplayedHandle, ticket), on_device(args));
  finish();
}

void StagedSteps::receive(const Ticket& ticket, const RowsOut& rows) {
  steps_->receive(on_device(HostTensors::kReplayedHandle, ticket), on_device(rows));
  finish();
  bring(rows);
}

void StagedSteps::dispatch(const Ticket& ticket, const DispatchArgs& args, const RowsOut& rows) {
  const DispatchArgs staged = on_device(args);
  steps_->dispatch(on_device(HostTensors::kReplayedHandle, ticket), staged, on_device(rows));
  finish();
  bring(rows);
}

void StagedSteps::send_back(const Ticket& ticket, const CombineArgs& args) {
  const CombineArgs staged = on_device(args, ticket.num_tokens);
  steps_->send_back(on_device(HostTensors::kReturnedHandle, ticket), staged);
  sent_ = staged;
  finish();
}

void StagedSteps::reduce(const Ticket& ticket, const CombineArgs&, const CombineOut& sums) {
  steps_->reduce(on_device(HostTensors::kReturnedHandle, ticket), sent_, on_device(sums, ticket.num_tokens));
  finish();
  bring(sums, ticket.num_tokens);
}

void StagedSteps::combine(const Ticket& ticket, const CombineArgs& args, const CombineOut& sums) {
  sent_ = on_device(args, ticket.num_tokens);
  steps_->combine(on_device(HostTensors::kReturnedHandle, ticket), sent_, on_device(sums, ticket.num_tokens));
  finish();
  bring(sums, ticket.num_tokens);
}

}  // namespace ferry::cuda
