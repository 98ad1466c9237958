// Memory on a GPU, and the rows of a rank, for the examples.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <vector>

#include "ferry/cuda/cuda_world.h"
#include "ferry/ferry.h"

inline void require_success(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// A copy of a vector in memory of the current GPU.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& host) : count_(host.size()) {
    require_success(cudaMalloc(&data_, std::max<std::size_t>(1, count_) * sizeof(T)));
    require_success(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  explicit OnGpu(std::size_t count) : OnGpu(std::vector<T>(count)) {}
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  T* data() const { return data_; }
  // Waits for what the GPU has to do.
  std::vector<T> read() const {
    std::vector<T> host(count_);
    require_success(cudaDeviceSynchronize());
    require_success(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

// What dispatch writes on a rank; a format without tiled scales needs no scales_offsets.
struct GpuRows {
  explicit GpuRows(const ferry::RowLayout& layout)
      : capacity(layout.min_row_capacity),
        row_bytes(layout.payload_row_bytes),
        groups(layout.groups),
        scales_shape(layout.scales_shape(capacity)),
        payload(static_cast<std::size_t>(capacity * row_bytes)),
        scales(count(scales_shape)),
        row_offsets(static_cast<std::size_t>(groups) + 1),
        expert_ids(static_cast<std::size_t>(groups)),
        src_info(static_cast<std::size_t>(capacity) * 2),
        scales_offsets(static_cast<std::size_t>(groups)) {}

  // bf16 rows.
  ferry::DispatchOutput plain(int hidden) const {
    ferry::DispatchOutput out = without_payload();
    out.payload = ferry::Tensor(payload.data(), ferry::DType::bf16, {capacity, hidden});
    return out;
  }
  // Codes and one byte for each scale, in tiles.
  ferry::DispatchOutput tiled() const {
    ferry::DispatchOutput out = without_payload();
    out.payload = ferry::Tensor(payload.data(), ferry::DType::u8, {capacity, row_bytes});
    out.scales = ferry::Tensor(scales.data(), ferry::DType::u8,
                               {scales_shape[0], scales_shape[1], scales_shape[2], scales_shape[3], scales_shape[4]});
    out.scales_offsets = ferry::Tensor(scales_offsets.data(), ferry::DType::u32, {groups});
    return out;
  }

  std::int64_t capacity;
  std::int64_t row_bytes;
  std::int64_t groups;
  std::vector<std::int64_t> scales_shape;
  OnGpu<std::uint8_t> payload;
  OnGpu<std::uint8_t> scales;
  OnGpu<std::uint32_t> row_offsets;
  OnGpu<std::int32_t> expert_ids;
  OnGpu<std::int32_t> src_info;
  OnGpu<std::uint32_t> scales_offsets;

 private:
  static std::size_t count(const std::vector<std::int64_t>& shape) {
    std::size_t product = shape.empty() ? 0 : 1;
    for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
    return product;
  }
  ferry::DispatchOutput without_payload() const {
    ferry::DispatchOutput out;
    out.row_offsets = ferry::Tensor(row_offsets.data(), ferry::DType::u32, {groups + 1});
    out.expert_ids = ferry::Tensor(expert_ids.data(), ferry::DType::i32, {groups});
    out.src_info = ferry::Tensor(src_info.data(), ferry::DType::i32, {capacity, 2});
    return out;
  }
};

// Runs `body` on a rank for each GPU, up to 4. The exit code of the example: 0 where it returned true on all of them,
// 77 where there is no GPU.
inline int all_gpus_right(const std::function<bool(ferry::World&)>& body) {
  const int ranks = std::min(4, ferry::num_cuda_devices());
  if (ranks == 0) {
    std::printf("example: skipped: no GPU was found\n");
    return 77;
  }
  std::vector<int> right(static_cast<std::size_t>(ranks));
  try {
    ferry::run_cuda_ranks(ranks, false, [&](ferry::World& world) {
      require_success(cudaSetDevice(world.rank()));  // of what this thread allocates and waits for
      right[static_cast<std::size_t>(world.rank())] = body(world) ? 1 : 0;
    });
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  const auto num_right = std::count(right.begin(), right.end(), 1);
  std::printf("%d of %d ranks got what they should\n", static_cast<int>(num_right), ranks);
  return num_right == ranks ? 0 : 1;
}
