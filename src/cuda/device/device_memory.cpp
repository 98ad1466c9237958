#include "cuda/device/device_memory.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/error.h"

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
  // A blocking stream waits for the default stream only. A kernel of another stream may belong to a rank that waits for
  // this one, so the stream must not wait for it.
  cudaError_t status = cudaMemsetAsync(data_, 0, bytes, cudaStreamPerThread);
  if (status == cudaSuccess) status = cudaStreamSynchronize(cudaStreamPerThread);
  if (status != cudaSuccess) cudaFree(data_);
  cuda_check(status, "cudaMemsetAsync");
}

DeviceMemory::~DeviceMemory() {
  const RelaxedCapture relaxed;
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device_);
  cudaFree(data_);
  cudaSetDevice(before);
}

MemoryStream::MemoryStream() {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  cuda_check(cudaGetDevice(&properties.location.id), "cudaGetDevice");
  cuda_check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
  std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
  cudaError_t status = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept);
  if (status == cudaSuccess) status = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (status != cudaSuccess) cudaMemPoolDestroy(pool_);
  cuda_check(status, "a stream and its memory");
}
MemoryStream::~MemoryStream() {
  const RelaxedCapture relaxed;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  cudaMemPoolDestroy(pool_);
}
void MemoryStream::wait() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

SideStream::SideStream() {
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
SideStream::~SideStream() { cudaStreamDestroy(stream_); }
void SideStream::wait() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

StreamMemory::StreamMemory(const MemoryStream& stream, std::size_t bytes) : stream_(stream.get()) {
  void* memory = nullptr;
  if (cudaMallocFromPoolAsync(&memory, bytes, stream.pool(), stream_) != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorKind::system,
                fmt::format("no memory for {} bytes on the device of this rank; make max_tokens smaller", bytes));
  }
  data_ = static_cast<std::byte*>(memory);
}
StreamMemory::~StreamMemory() { cudaFreeAsync(data_, stream_); }

// A capture forbids cudaDeviceSynchronize. Freeing waits, too. Where the device is broken nothing runs any more.
void wait_for_device() noexcept {
  if (cudaDeviceSynchronize() == cudaSuccess) return;
  constexpr std::size_t kOfItsOwn = 4 << 20;  // not a part of other memory, which CUDA may keep
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  if (cudaMalloc(&memory, kOfItsOwn) == cudaSuccess) cudaFree(memory);
  cudaGetLastError();
}

void DeferredFree::keep(std::shared_ptr<void> memory) {
  const std::lock_guard lock(guard_);
  kept_.push_back(std::move(memory));
}
void DeferredFree::free() {
  const std::lock_guard lock(guard_);
  if (kept_.empty()) return;
  int before = 0;
  cudaGetDevice(&before);
  for (const int device : devices_)
    if (cudaSetDevice(device) == cudaSuccess) wait_for_device();
  cudaSetDevice(before);
  kept_.clear();
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  cuda_check(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  std::memset(data_, 0, bytes);
}
PinnedMemory::~PinnedMemory() {
  const RelaxedCapture relaxed;
  cudaFreeHost(data_);
}

void DeviceEvent::create() {
  cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}
DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

}  // namespace ferry::cuda
