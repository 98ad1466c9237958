// Device memory and pinned host memory with an owner, and the device that calls run on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ferry::cuda {

// Makes `device` current, and restores the previous device at the end.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

// While it lives, this thread may make calls that CUDA forbids to one that captures a stream, or while another one
// does.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Zeroed memory of the current device. Freeing it works on any device, also in a capture, and waits for the kernels of
// its own.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as(std::size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(data_ + byte_offset);
  }

 private:
  int device_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// A stream of the current device with a memory pool. Allocating and freeing in stream order waits for no kernel of
// another stream; cudaFree would.
class MemoryStream {
 public:
  MemoryStream();
  ~MemoryStream();
  MemoryStream(const MemoryStream&) = delete;
  MemoryStream& operator=(const MemoryStream&) = delete;
  void wait() const;
  cudaStream_t get() const { return stream_; }
  cudaMemPool_t pool() const { return pool_; }

 private:
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// A stream of the current device that does not synchronise with others, for a copy that waits for no kernel. It works
// also while this thread captures a stream.
class SideStream {
 public:
  SideStream();
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  void wait() const;
  cudaStream_t get() const { return stream_; }

 private:
  const RelaxedCapture relaxed_;
  cudaStream_t stream_ = nullptr;
};

// Not zeroed. Must not outlive its stream.
class StreamMemory {
 public:
  StreamMemory(const MemoryStream& stream, std::size_t bytes);
  ~StreamMemory();
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  cudaStream_t stream_;
  std::byte* data_ = nullptr;
};

// Waits for all kernels of the current device, also while a stream of it is captured, and leaves no error behind. The
// wait ends such a capture.
void wait_for_device() noexcept;

// Memory that is no longer used and is freed later. Freeing waits for all kernels of the device and blocks
// every launch meanwhile. A running kernel may wait for such a launch (I21), so the memory is freed where all ranks
// meet.
class DeferredFree {
 public:
  // `devices`: their kernels may still use the memory.
  explicit DeferredFree(std::vector<int> devices) : devices_(std::move(devices)) {}
  ~DeferredFree() { free(); }
  DeferredFree(const DeferredFree&) = delete;
  DeferredFree& operator=(const DeferredFree&) = delete;
  void keep(std::shared_ptr<void> memory);
  // Waits for all kernels of the devices, then frees. Concurrent callers wait for each other.
  void free();

 private:
  const std::vector<int> devices_;
  std::mutex guard_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Zeroed host memory that every device can write, at the same address.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// An event of the current device, without a time.
class DeviceEvent {
 public:
  void create();
  ~DeviceEvent();
  DeviceEvent() = default;
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ferry::cuda
