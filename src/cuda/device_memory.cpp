#include "cuda/device_memory.h"

#include <fmt/core.h>

#include <cstring>

#include "cuda/launch.h"

namespace ferry::cuda {

DeviceScope::DeviceScope(int device) {
  cuda_check(cudaGetDevice(&before_), "cudaGetDevice");
  cuda_check(cudaSetDevice(device), "cudaSetDevice");
}
DeviceScope::~DeviceScope() { cudaSetDevice(before_); }

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  cuda_check(cudaGetDevice(&device_), "cudaGetDevice");
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorKind::system,
                fmt::format("no memory for {} bytes on device {}; make max_tokens smaller", bytes, device_));
  }
  data_ = static_cast<std::byte*>(memory);
  cuda_check(cudaMemset(data_, 0, bytes), "cudaMemset");
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

DeviceMemory::~DeviceMemory() {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device_);
  cudaFree(data_);
  cudaSetDevice(before);
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  cuda_check(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  std::memset(data_, 0, bytes);
}
PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

void DeviceEvent::create() {
  cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}
DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

}  // namespace ferry::cuda
