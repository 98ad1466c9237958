// Memory on a GPU, and the rows of a rank, for the examples.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
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

// What a dispatch writes on a rank: memory of the current GPU for each output that the layout has.
class GpuRows {
 public:
  explicit GpuRows(const ferry::RowLayout& layout) {
    int device = 0;
    require_success(cudaGetDevice(&device));
    for (const ferry::TensorSpec& spec : ferry::dispatch_outputs(layout, layout.min_row_capacity)) {
      memory_.push_back(std::make_unique<OnGpu<std::uint8_t>>(spec.bytes()));
      outputs_.*spec.field = {memory_.back()->data(), spec.dtype, spec.shape, ferry::Device::cuda(device)};
    }
  }

  const ferry::DispatchOutput& outputs() const { return outputs_; }
  // The bytes of an output. Waits for what the GPU has to do.
  std::vector<std::uint8_t> read(ferry::Tensor ferry::DispatchOutput::*field) const {
    for (const auto& memory : memory_)
      if (memory->data() == (outputs_.*field).data) return memory->read();
    return {};  // not one of this layout
  }
  template <class T>
  std::vector<T> read_as(ferry::Tensor ferry::DispatchOutput::*field) const {
    const std::vector<std::uint8_t> bytes = read(field);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  std::vector<std::unique_ptr<OnGpu<std::uint8_t>>> memory_;
  ferry::DispatchOutput outputs_;
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
