#include "cuda/exchange/host_memory/host_tensors.h"

#include <algorithm>

#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/layout/scale_layout.h"

namespace ferry::cuda {
namespace {

constexpr std::size_t kSlack = 256;

std::size_t bytes_of(const ConstTensor& tensor) {
  return static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype);
}
std::size_t line_bytes(const ConstTensor& tensor) {
  return tensor.shape[0] == 0 ? 0 : bytes_of(tensor) / static_cast<std::size_t>(tensor.shape[0]);
}

// A tensor as runs of contiguous bytes: its rows may have any stride.
struct Runs {
  std::size_t count;
  std::size_t bytes;
  std::size_t pitch;
};
Runs runs_of(const ConstTensor& tensor) {
  if (tensor.is_contiguous() || tensor.rank < 2) return {1, bytes_of(tensor), bytes_of(tensor)};
  return {static_cast<std::size_t>(tensor.shape[0]), line_bytes(tensor),
          static_cast<std::size_t>(tensor.strides[0]) * size_of(tensor.dtype)};
}

// CUDA takes no pitch from 2^31 bytes on, so one run is a plain copy.
void copy_runs(std::byte* to, std::size_t to_pitch, const std::byte* from, std::size_t from_pitch, const Runs& runs,
               cudaMemcpyKind kind, cudaStream_t stream) {
  if (runs.count == 1)
    cuda_check(cudaMemcpyAsync(to, from, runs.bytes, kind, stream), "cudaMemcpyAsync");
  else
    cuda_check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, runs.bytes, runs.count, kind, stream),
               "cudaMemcpy2DAsync");
}

// The end of the rows that a dispatch wrote.
std::int64_t written_rows(const DispatchOutput& host, const RowLayout& layout) {
  const std::uint32_t rows = host.source_offsets ? host.source_offsets.as<std::uint32_t>()[layout.sources]
                                                 : host.row_offsets.as<std::uint32_t>()[layout.groups];
  return std::min<std::int64_t>(rows, host.payload.shape[0]);
}

// How many tiles of scales a dispatch wrote.
std::int64_t written_tiles(const DispatchOutput& host, const RowLayout& layout) {
  if (host.source_offsets) return scale_blocks(written_rows(host, layout));  // one group
  const auto* offsets = host.row_offsets.as<std::uint32_t>();
  const auto* tiles = host.scales_offsets.as<std::uint32_t>();
  std::int64_t most = 0;
  for (int group = 0; group < layout.groups; ++group) {
    const std::int64_t first = offsets[group], size = offsets[group + 1] - first;
    const std::uint32_t block = static_cast<std::uint32_t>(first / kScaleTileRows) + tiles[group];  // wraps around
    if (size > 0) most = std::max<std::int64_t>(most, block + scale_blocks(size));
  }
  return most;
}

}  // namespace

std::size_t HostTensors::most_bytes(const Shape& shape, const RowLayout& layout, RowOrder order) {
  const std::int64_t n = shape.max_tokens;
  const std::int64_t rows = std::max(layout.min_row_capacity, layout.least_rows(order));
  const std::int64_t of_entries = order == RowOrder::by_source ? rows * shape.top_k * 8 : 0;  // ids, weights of rows
  std::int64_t scales = static_cast<std::int64_t>(size_of(layout.scale_dtype));
  for (const std::int64_t extent : layout.scales_shape(rows)) scales *= extent;
  const std::int64_t bytes[] = {3 * layout.handle_bytes,
                                n * std::max(std::int64_t{shape.hidden} * 4, layout.payload_row_bytes),
                                n * layout.scales_per_row * static_cast<std::int64_t>(size_of(layout.scale_dtype)),
                                n * shape.top_k * 8,
                                n * shape.top_k * 4,
                                shape.experts * 4,
                                n * 4,
                                4,
                                scales,
                                rows * layout.payload_row_bytes,
                                (layout.groups + 1) * 4,
                                layout.groups * 4,
                                rows * 8,
                                rows * 4,
                                layout.groups * 4,
                                layout.groups * 4,
                                of_entries,
                                of_entries,
                                (layout.sources + 1) * 4,
                                rows * shape.hidden * 4,
                                n * shape.hidden * 4,
                                rows * (order == RowOrder::by_source ? shape.top_k : 1) * 4,
                                n * shape.top_k * 4};
  std::size_t total = 0;
  for (const std::int64_t each : bytes) total += (static_cast<std::size_t>(each) + 255) / 256 * 256 + kSlack;
  return total;
}

Tensor HostTensors::buffer_for(Kind kind, const ConstTensor& host) {
  if (host.rank == 0) return {};  // not given; a tensor without elements is given, and may have no memory
  Buffer& buffer = buffers_[kind];
  if (buffer.memory == nullptr || buffer.bytes < bytes_of(host)) {
    buffer.memory.reset();
    buffer.memory = std::make_unique<StreamMemory>(*stream_, bytes_of(host) + kSlack);
    buffer.bytes = bytes_of(host);
    cuda_check(cudaMemsetAsync(buffer.memory->data(), 0, buffer.bytes + kSlack, stream()), "cudaMemsetAsync");
  }
  return {buffer.memory->data(), host.dtype, std::span(host.shape.data(), static_cast<std::size_t>(host.rank))};
}

Tensor HostTensors::copy_in(Kind kind, const ConstTensor& host) {
  const Tensor device = buffer_for(kind, host);
  if (!host || bytes_of(host) == 0) return device;
  const Runs runs = runs_of(host);
  copy_runs(device.as<std::byte>(), runs.bytes, host.as<std::byte>(), runs.pitch, runs, cudaMemcpyHostToDevice,
            stream());
  return device;
}

Tensor HostTensors::copy_in_rows(Kind kind, const ConstTensor& host, std::int64_t rows) {
  const Tensor device = buffer_for(kind, host);
  const std::size_t bytes = static_cast<std::size_t>(rows) * line_bytes(host);
  if (bytes != 0)
    cuda_check(cudaMemcpyAsync(device.data, host.data, bytes, cudaMemcpyHostToDevice, stream()), "cudaMemcpyAsync");
  return device;
}

void HostTensors::copy_out(Kind kind, const Tensor& host) const {
  if (!host || bytes_of(host) == 0) return;
  const Runs runs = runs_of(host);
  copy_runs(host.as<std::byte>(), runs.pitch, data(kind), runs.bytes, runs, cudaMemcpyDeviceToHost, stream());
}

void HostTensors::copy_out_rows(Kind kind, const Tensor& host, std::int64_t rows) const {
  const std::size_t bytes = static_cast<std::size_t>(rows) * line_bytes(host);
  if (bytes != 0)
    cuda_check(cudaMemcpyAsync(host.data, data(kind), bytes, cudaMemcpyDeviceToHost, stream()), "cudaMemcpyAsync");
}

void HostTensors::copy_out_columns(Kind kind, const Tensor& host, std::int64_t columns) const {
  const std::size_t element = size_of(host.dtype);
  const std::size_t pitch = static_cast<std::size_t>(host.shape[1]) * element;
  if (columns != 0)
    cuda_check(cudaMemcpy2DAsync(host.data, pitch, data(kind), pitch, static_cast<std::size_t>(columns) * element,
                                 static_cast<std::size_t>(host.shape[0]), cudaMemcpyDeviceToHost, stream()),
               "cudaMemcpy2DAsync");
}

void HostTensors::copy_out_routing(const DispatchOutput& host, const RowLayout& layout) const {
  for (const Output& output : kOutputs)
    if (!output.is_of_rows) copy_out(output.kind, host.*output.field);
  wait();
  const std::int64_t count = written_rows(host, layout);
  for (const Output& output : kOutputs)
    if (output.is_of_rows && output.kind != kPayload && output.kind != kScales && host.*output.field)
      copy_out_rows(output.kind, host.*output.field, count);
}

void HostTensors::copy_out_rows(const DispatchOutput& host, const RowLayout& layout) const {
  copy_out_routing(host, layout);
  const std::int64_t count = written_rows(host, layout);
  copy_out_rows(kPayload, host.payload, count);
  const bool has_scales_of_experts = host.scales.rank == 3;  // padded, transposed
  if (layout.scale_layout == ScaleLayout::row_major) copy_out_rows(kScales, host.scales, count);
  if (has_scales_of_experts) copy_out(kScales, host.scales);
  if (layout.scale_layout == ScaleLayout::transposed && !has_scales_of_experts)
    copy_out_columns(kScales, host.scales, count);
  if (layout.scale_layout == ScaleLayout::tiled) copy_out_rows(kScales, host.scales, written_tiles(host, layout));
  wait();
}

void HostTensors::free_with(DeferredFree& deferred) {
  for (Buffer& buffer : buffers_) buffer.memory.reset();
  deferred.keep(std::move(stream_));
}

}  // namespace ferry::cuda
