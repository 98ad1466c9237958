// CallTrace: one call of an exchange while a Trace records it: its steps, one after the other, and its waits for ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ferry/detail/protocol/contracts/fabric.h"

namespace ferry {

using TraceClock = std::chrono::steady_clock;

struct TraceSpan {
  TraceClock::time_point begin{};
  TraceClock::time_point end{};

  std::uint64_t nanoseconds() const {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
  }
};

struct TracedStep {
  const char* name;
  TraceSpan span;
  std::vector<std::uint64_t> waited_ns;  // [ranks]: all workers together
};

struct TracedWait {
  WaitSite site;
  int worker;    // 0: the thread that made the call
  bool arrived;  // false: it failed
  TraceSpan span;
};

struct TracedCall {
  const char* name = "";
  TraceSpan span;
  std::uint64_t dispatch = 0;  // the number of the dispatch, from 1; 0: the call has none, or was refused before
  std::uint64_t combine = 0;   // the same of the combine
  int tokens = -1;             // of this rank; -1: only the device knows
  bool threw = false;
  std::vector<TracedStep> steps;
  std::vector<TracedWait> waits;
  std::uint64_t waits_left_out = 0;
};

// Steps of a kernel. Its blocks do them beside each other.
inline constexpr std::array kKernelSteps{"route", "send", "wait", "lay out", "sum"};

struct TracedKernelStep {
  std::size_t step;  // of kKernelSteps
  TraceSpan span;    // from the first block that began it to the last one that ended it
};

// A kernel that the device of the exchange has recorded, by the host's clock.
struct TracedKernel {
  const char* name;
  std::uint64_t dispatch;  // the newest one when the kernel had ended
  TraceSpan span;
  std::vector<std::uint64_t> waited_ns;  // [ranks]
  std::vector<TracedKernelStep> steps;   // those that it has
};

class KernelTimes {
 public:
  virtual ~KernelTimes() = default;
  // Kernels that have ended by now, oldest first. From any thread, also when the exchange is gone.
  virtual std::vector<TracedKernel> read() = 0;
};

class CallTrace {
 public:
  // Of the waits of a call past these only their sums are kept.
  static constexpr std::size_t kMostWaits = 4096;

  CallTrace(const char* call, int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
    call_.name = call;
    call_.span.begin = TraceClock::now();
  }

  // By the thread that makes the call.
  TracedCall& call() { return call_; }
  // The step before ends. By the same thread, between what its workers do.
  void begin_step(const char* name) {
    const TraceClock::time_point now = TraceClock::now();
    end_step(now);
    call_.steps.push_back({name, {now, now}, std::vector<std::uint64_t>(ranks_)});
  }
  // The call enqueues kernels, which are recorded by themselves.
  void note_kernels(std::shared_ptr<KernelTimes> times) { kernels_ = std::move(times); }
  const std::shared_ptr<KernelTimes>& kernels() const { return kernels_; }
  TracedCall end(bool by_exception) {
    call_.span.end = TraceClock::now();
    end_step(call_.span.end);
    call_.threw = by_exception;
    return std::move(call_);
  }

  // By any worker of the rank.
  void note_wait(const TracedWait& wait) {
    const std::lock_guard lock(guard_);
    if (!call_.steps.empty())
      call_.steps.back().waited_ns[static_cast<std::size_t>(wait.site.peer)] += wait.span.nanoseconds();
    if (call_.waits.size() < kMostWaits)
      call_.waits.push_back(wait);
    else
      ++call_.waits_left_out;
  }

 private:
  void end_step(TraceClock::time_point now) {
    if (!call_.steps.empty()) call_.steps.back().span.end = now;
  }

  const std::size_t ranks_;
  TracedCall call_;
  std::shared_ptr<KernelTimes> kernels_;
  std::mutex guard_;
};

}  // namespace ferry
