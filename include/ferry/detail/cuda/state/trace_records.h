// What a Trace knows of the kernels of an exchange: the newest records of them in device memory, in the order of the
// stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/state/step_times.h"

namespace ferry::cuda {

enum class TracedKernelKind : std::uint64_t {
  dispatch,
  dispatch_sends,
  dispatch_receives,
  combine,
  combine_sends,
  combine_receives,
};

// Nanoseconds by the device's clock, but for `enqueued`.
struct KernelRecord {
  TracedKernelKind kind = TracedKernelKind::dispatch;
  std::uint64_t dispatch = 0;  // the newest one when the kernel had ended
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t enqueued = 0;  // by the host's clock; 0: in a captured graph
  StepTimes steps;
};

// A record and then, for each rank, how long the kernel waited for it. The kernel that runs writes its steps beside
// them: where its record lies, only the device knows.
struct TraceRecords {
  static constexpr std::size_t kRecords = 256;

  std::byte* memory = nullptr;
  int ranks = 0;

  FERRY_HD static std::size_t record_bytes(int ranks) {
    return sizeof(KernelRecord) + static_cast<std::size_t>(ranks) * sizeof(std::uint64_t);
  }
  static std::size_t bytes(int ranks) { return kFirstRecord + kRecords * record_bytes(ranks); }

  // Of kernels that have ended.
  FERRY_HD DeviceWord<std::uint64_t>& count() const { return *reinterpret_cast<DeviceWord<std::uint64_t>*>(memory); }
  FERRY_HD StepTimes& steps() const { return *reinterpret_cast<StepTimes*>(memory + sizeof(std::uint64_t)); }
  FERRY_HD KernelRecord& record(std::uint64_t number) const {
    return *reinterpret_cast<KernelRecord*>(memory + kFirstRecord + number % kRecords * record_bytes(ranks));
  }
  FERRY_HD std::uint64_t* waited_ns(std::uint64_t number) const {
    return reinterpret_cast<std::uint64_t*>(&record(number) + 1);
  }

 private:
  static constexpr std::size_t kFirstRecord = sizeof(std::uint64_t) + sizeof(StepTimes);
};

// Around a kernel (trace_kernels.cuh).
struct TraceParams {
  TraceRecords records;
  const DeviceState* state = nullptr;
  const DeviceWord<std::uint64_t>* waited_ns = nullptr;  // [ranks]: PeerLinks
  TracedKernelKind kind = TracedKernelKind::dispatch;
  std::uint64_t enqueued = 0;
};

}  // namespace ferry::cuda
