#include "cuda/exchange/state/kernel_trace.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {
namespace {

const char* name_of(TracedKernelKind kind) {
  switch (kind) {
    case TracedKernelKind::dispatch:
      return "dispatch kernel";
    case TracedKernelKind::dispatch_sends:
      return "dispatch kernel: sends";
    case TracedKernelKind::dispatch_receives:
      return "dispatch kernel: receives";
    case TracedKernelKind::combine:
      return "combine kernel";
    case TracedKernelKind::combine_sends:
      return "combine kernel: sends";
    case TracedKernelKind::combine_receives:
      return "combine kernel: sums";
  }
  return "kernel";
}

// The device's clock is another one than the host's. No kernel begins before it was enqueued, and one that comes to an
// idle stream begins within microseconds: the least time between the two is taken for none. Where all were captured,
// the last one ends now.
std::int64_t ahead_of_host(const std::vector<const KernelRecord*>& records) {
  constexpr std::int64_t kNone = INT64_MAX;
  std::int64_t least = kNone;
  for (const KernelRecord* record : records)
    if (record->enqueued != 0) least = std::min(least, static_cast<std::int64_t>(record->begin - record->enqueued));
  if (least != kNone) return least;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(TraceClock::now().time_since_epoch());
  return static_cast<std::int64_t>(records.back()->end) - now.count();
}

TraceClock::time_point host_time(std::uint64_t nanoseconds, std::int64_t ahead) {
  return TraceClock::time_point(std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds) - ahead));
}
TraceSpan host_span(std::uint64_t begin, std::uint64_t end, std::int64_t ahead) {
  return {host_time(begin, ahead), host_time(end, ahead)};
}

// A step whose wait failed in all blocks has no end.
std::vector<TracedKernelStep> steps_of(const StepTimes& times, std::int64_t ahead) {
  static_assert(kKernelSteps.size() == kNumKernelSteps);
  std::vector<TracedKernelStep> steps;
  for (std::size_t step = 0; step < kKernelSteps.size(); ++step)
    if (times.end[step].raw != 0)
      steps.push_back({step, host_span(~times.begin[step].raw, times.end[step].raw, ahead)});
  return steps;
}

}  // namespace

KernelTrace::KernelTrace(std::shared_ptr<DeviceMemory> memory, std::size_t offset, int device, int ranks)
    : memory_(std::move(memory)), offset_(offset), device_(device), ranks_(ranks) {}

std::vector<TracedKernel> KernelTrace::read_device() const {
  const DeviceScope scope(device_);
  std::vector<std::uint64_t> words(TraceRecords::bytes(ranks_) / sizeof(std::uint64_t));
  const SideStream stream;
  cuda_check(cudaMemcpyAsync(words.data(), memory_->data() + offset_, words.size() * sizeof words[0],
                             cudaMemcpyDeviceToHost, stream.get()),
             "cudaMemcpyAsync");
  stream.wait();
  const TraceRecords left{reinterpret_cast<std::byte*>(words.data()), ranks_};
  const std::uint64_t count = load_relaxed(left.count());
  const std::uint64_t first = count - std::min<std::uint64_t>(count, TraceRecords::kRecords);
  std::vector<const KernelRecord*> records;
  for (std::uint64_t number = first; number < count; ++number) records.push_back(&left.record(number));
  if (records.empty()) return {};
  const std::int64_t ahead = ahead_of_host(records);
  std::vector<TracedKernel> kernels;
  for (std::uint64_t number = first; number < count; ++number) {
    const KernelRecord& record = left.record(number);
    const std::uint64_t* waited = left.waited_ns(number);
    kernels.push_back({name_of(record.kind),
                       record.dispatch + 1 - kFirstEpoch,
                       host_span(record.begin, record.end, ahead),
                       {waited, waited + ranks_},
                       steps_of(record.steps, ahead)});
  }
  return kernels;
}

std::vector<TracedKernel> KernelTrace::read() {
  const std::lock_guard lock(guard_);
  keep();
  return kept_;
}

void KernelTrace::finish() noexcept {
  const std::lock_guard lock(guard_);
  keep();
  memory_.reset();
}

// The lock is held.
void KernelTrace::keep() noexcept {
  try {
    if (memory_ != nullptr) kept_ = read_device();
  } catch (...) {
    // The device has failed. What it said before is kept, and the calls are traced without it.
  }
}

}  // namespace ferry::cuda
