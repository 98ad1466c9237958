// How a process waits for others: it moves the network's bytes meanwhile.
#pragma once

#include <chrono>
#include <thread>

#include "cpu/host_waits.h"
#include "cpu/shmem_api.h"

namespace ferry::cpu {

// As HostPacer, and lets the network progress. Processes are often more than cores, so it yields soon; the library
// yields as well, and on a busy machine each turn may take long, so the clock runs from the first one.
class ShmemPacer {
 public:
  explicit ShmemPacer(Clock::duration deadline) : deadline_(deadline) {}

  Pace pause() {
    shmem::progress();
    const bool yields = ++turns_ >= kSpins;
    if (yields) std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (turns_ == 1) started_ = now;
    if (now - started_ >= deadline_) return Pace::expired;
    return yields ? Pace::look_for_abort : Pace::again;
  }

 private:
  static constexpr std::int64_t kSpins = 16;
  Clock::duration deadline_;
  Clock::time_point started_{};
  std::int64_t turns_ = 0;
};

}  // namespace ferry::cpu
