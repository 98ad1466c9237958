// KernelTrace: the kernels of an exchange that its device recorded (trace_records.h), for a Trace on any thread.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device/device_memory.h"
#include "exchange/calls/call_trace.h"
#include "ferry/detail/cuda/state/trace_records.h"

namespace ferry::cuda {

class KernelTrace final : public KernelTimes {
 public:
  // The records lie at `offset` in the memory.
  KernelTrace(std::shared_ptr<DeviceMemory> memory, std::size_t offset, int device, int ranks);

  TraceRecords records() const { return {memory_->data() + offset_, ranks_}; }

  std::vector<TracedKernel> read() override;
  // The exchange is about to give its memory up: what its kernels have recorded by now is kept.
  void finish() noexcept;

 private:
  std::vector<TracedKernel> read_device() const;
  void keep() noexcept;

  std::mutex guard_;
  std::shared_ptr<DeviceMemory> memory_;
  const std::size_t offset_;
  const int device_;
  const int ranks_;
  std::vector<TracedKernel> kept_;
};

}  // namespace ferry::cuda
