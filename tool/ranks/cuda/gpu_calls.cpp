// Calls of a GPU rank for a caller with host memory: one piece of device memory with a copy of each tensor.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "cuda/world/device_memory.h"
#include "ferry/detail/cuda/kernels/launch.h"
#include "ferry/detail/layout/scale_layout.h"
#include "tool/io/human.h"
#include "tool/ranks/cuda/cuda_gpus.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;

std::size_t bytes_of(const ConstTensor& tensor) {
  return static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype);
}

// Where each tensor lies in the device memory.
struct Places {
  std::size_t tokens, ids, weights, scale, payload, scales, row_offsets, expert_ids, src_info, scales_offsets, results,
      sums, total;
};

Places plan_places(const Shape& shape, const RowLayout& layout) {
  std::size_t end = 0;
  const auto take = [&end](std::int64_t count, std::int64_t bytes) {
    const std::size_t at = end;
    end += (static_cast<std::size_t>(count) * static_cast<std::size_t>(bytes) + 255) / 256 * 256 + 256;
    return at;
  };
  const std::int64_t n = shape.max_tokens, rows = layout.min_row_capacity;
  std::int64_t scales = static_cast<std::int64_t>(size_of(layout.scale_dtype));
  for (const std::int64_t extent : layout.scales_shape(rows)) scales *= extent;
  Places places{};
  places.tokens = take(n, shape.hidden * 4);
  places.ids = take(n, shape.top_k * 8);
  places.weights = take(n, shape.top_k * 4);
  places.scale = take(1, 4);
  places.payload = take(rows, layout.payload_row_bytes);
  places.scales = take(1, scales);
  places.row_offsets = take(layout.groups + 1, 4);
  places.expert_ids = take(layout.groups, 4);
  places.src_info = take(rows, 8);
  places.scales_offsets = take(layout.groups, 4);
  places.results = take(rows, shape.hidden * 4);
  places.sums = take(n, shape.hidden * 4);
  places.total = end;
  return places;
}

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
  GpuCalls(int device, const Shape& shape, const RowLayout& layout)
      : device_(device), layout_(layout), places_(plan_places(shape, layout)) {
    const cuda::DeviceScope scope(device_);
    require_device_memory(device, places_.total);
    memory_ = std::make_unique<cuda::DeviceMemory>(places_.total);
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~GpuCalls() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  GpuCalls(const GpuCalls&) = delete;
  GpuCalls& operator=(const GpuCalls&) = delete;

  void give(const DispatchInput& in, const DispatchOutput& out) override {
    const cuda::DeviceScope scope(device_);
    dispatch_in_ = in;
    dispatch_in_.tokens = copy_in(in.tokens, places_.tokens);
    dispatch_in_.topk_ids = copy_in(in.topk_ids, places_.ids);
    dispatch_in_.topk_weights = copy_in(in.topk_weights, places_.weights);
    if (in.input_scale != nullptr)
      dispatch_in_.input_scale =
          static_cast<const float*>(copy_in(ConstTensor(in.input_scale, DType::f32, {1}), places_.scale).data);
    rows_ = out;
    dispatch_out_.payload = on_device(out.payload, places_.payload);
    dispatch_out_.scales = on_device(out.scales, places_.scales);
    dispatch_out_.row_offsets = on_device(out.row_offsets, places_.row_offsets);
    dispatch_out_.expert_ids = on_device(out.expert_ids, places_.expert_ids);
    dispatch_out_.src_info = on_device(out.src_info, places_.src_info);
    dispatch_out_.scales_offsets = on_device(out.scales_offsets, places_.scales_offsets);
    wait();
  }

  void dispatch(Exchange& exchange) override {
    const cuda::DeviceScope scope(device_);
    exchange.dispatch(dispatch_in_, dispatch_out_, {.stream = stream_});
    wait();
  }

  // Only rows that are there: the rest of the worst case stays untouched on the host.
  void take_rows() override {
    const cuda::DeviceScope scope(device_);
    copy_out(rows_.row_offsets, dispatch_out_.row_offsets);
    copy_out(rows_.expert_ids, dispatch_out_.expert_ids);
    copy_out(rows_.scales_offsets, dispatch_out_.scales_offsets);
    wait();
    const auto* offsets = static_cast<const std::uint32_t*>(rows_.row_offsets.data);
    const std::int64_t count = std::min<std::int64_t>(offsets[layout_.groups], layout_.min_row_capacity);
    copy_lines(rows_.payload, dispatch_out_.payload, count);
    copy_lines(rows_.src_info, dispatch_out_.src_info, count);
    if (layout_.scale_layout == ScaleLayout::row_major) copy_lines(rows_.scales, dispatch_out_.scales, count);
    if (layout_.scale_layout == ScaleLayout::transposed) copy_columns(count);
    if (layout_.scale_layout == ScaleLayout::tiled) copy_lines(rows_.scales, dispatch_out_.scales, num_tiles(offsets));
    wait();
  }

  void give(const CombineInput& in, const CombineOutput& out, std::int64_t num_rows) override {
    const cuda::DeviceScope scope(device_);
    combine_in_ = in;
    combine_in_.rows = on_device(in.rows, places_.results);
    combine_in_.src_info = dispatch_out_.src_info;
    combine_in_.topk_weights = copy_in(in.topk_weights, places_.weights);
    const std::size_t row_bytes = static_cast<std::size_t>(layout_.hidden) * size_of(in.rows.dtype);
    copy(memory_->data() + places_.results, in.rows.data, static_cast<std::size_t>(num_rows) * row_bytes,
         cudaMemcpyHostToDevice);
    sums_ = out.tokens;
    combine_out_.tokens = on_device(out.tokens, places_.sums);
    wait();
  }

  void combine(Exchange& exchange) override {
    const cuda::DeviceScope scope(device_);
    exchange.combine(combine_in_, combine_out_, {.stream = stream_});
    wait();
  }

  void take_sums() override {
    const cuda::DeviceScope scope(device_);
    copy_out(sums_, combine_out_.tokens);
    wait();
  }

  // A kernel's error is thrown by the next call, so a call without tokens follows the last round.
  void finish(Exchange& exchange) override {
    const cuda::DeviceScope scope(device_);
    DispatchInput nothing = dispatch_in_;
    for (ConstTensor* tensor : {&nothing.tokens, &nothing.topk_ids, &nothing.topk_weights}) tensor->shape[0] = 0;
    exchange.dispatch_async(nothing, {.stream = stream_});
    wait();
  }

 private:
  template <class Byte>
  Tensor on_device(const BasicTensor<Byte>& host, std::size_t place) const {
    if (host.rank == 0) return {};  // not given; what has no elements is, and may have no memory
    return {memory_->data() + place, host.dtype, std::span(host.shape.data(), static_cast<std::size_t>(host.rank))};
  }
  ConstTensor copy_in(const ConstTensor& host, std::size_t place) const {
    copy(memory_->data() + place, host.data, host ? bytes_of(host) : 0, cudaMemcpyHostToDevice);
    return on_device(host, place);
  }
  void copy_out(const Tensor& host, const Tensor& device) const {
    copy(host.data, device.data, host ? bytes_of(host) : 0, cudaMemcpyDeviceToHost);
  }
  // The first `count` entries of the first axis.
  void copy_lines(const Tensor& host, const Tensor& device, std::int64_t count) const {
    const std::size_t line = bytes_of(host) / static_cast<std::size_t>(host.shape[0]);
    copy(host.data, device.data, static_cast<std::size_t>(count) * line, cudaMemcpyDeviceToHost);
  }
  // The first `count` entries of each line of transposed scales.
  void copy_columns(std::int64_t count) const {
    const std::size_t element = size_of(layout_.scale_dtype);
    const std::size_t pitch = static_cast<std::size_t>(layout_.min_row_capacity) * element;
    if (count != 0)
      cuda_check(cudaMemcpy2DAsync(rows_.scales.data, pitch, dispatch_out_.scales.data, pitch,
                                   static_cast<std::size_t>(count) * element,
                                   static_cast<std::size_t>(layout_.scales_per_row), cudaMemcpyDeviceToHost, stream_),
                 "cudaMemcpy2DAsync");
  }
  std::int64_t num_tiles(const std::uint32_t* offsets) const {
    const auto* tiles = static_cast<const std::uint32_t*>(rows_.scales_offsets.data);
    std::int64_t most = 0;
    for (int group = 0; group < layout_.groups; ++group) {
      const std::int64_t first = offsets[group], size = offsets[group + 1] - first;
      const std::uint32_t block = static_cast<std::uint32_t>(first / kScaleTileRows) + tiles[group];  // wraps around
      if (size > 0) most = std::max<std::int64_t>(most, block + scale_blocks(size));
    }
    return most;
  }
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
    if (bytes != 0) cuda_check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
  }
  void wait() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  int device_;
  RowLayout layout_;
  Places places_;
  std::unique_ptr<cuda::DeviceMemory> memory_;
  cudaStream_t stream_ = nullptr;
  DispatchInput dispatch_in_;
  DispatchOutput rows_, dispatch_out_;
  CombineInput combine_in_;
  Tensor sums_;
  CombineOutput combine_out_;
};

}  // namespace

std::unique_ptr<RankCalls> CudaGpus::make_calls(int device, const Shape& shape, const RowLayout& layout) const {
  return std::make_unique<GpuCalls>(device, shape, layout);
}

}  // namespace ferry::app
