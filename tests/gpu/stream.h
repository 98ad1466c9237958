// Stream: a stream of a device that waits for no other.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::test {

class Stream {
 public:
  explicit Stream(int device) {
    const cuda::DeviceScope scope(device);
    cuda::cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  operator void*() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace ferry::test
