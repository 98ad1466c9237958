// Device memory of a test: a copy of host memory that goes with it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "ferry/cuda/cuda_world.h"
#include "ferry/tensor.h"

#define FERRY_SKIP_WITHOUT_GPU() \
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found"

namespace ferry::test {

inline void cuda_ok(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// Memory of the current device.
class DeviceCopy {
 public:
  DeviceCopy(const void* host, std::size_t bytes) : bytes_(bytes) {
    cuda_ok(cudaMalloc(&data_, bytes + 256));
    write(host);
  }
  ~DeviceCopy() { cudaFree(data_); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  void* data() const { return data_; }
  void write(const void* host) const {
    if (bytes_ != 0) cuda_ok(cudaMemcpy(data_, host, bytes_, cudaMemcpyHostToDevice));
  }
  void read(void* host) const {
    if (bytes_ != 0) cuda_ok(cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost));
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace ferry::test
