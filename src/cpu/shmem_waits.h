// How a process waits for others: it moves the network's bytes meanwhile.
#pragma once

#include <chrono>
#include <thread>

#include "cpu/host_waits.h"
#include "cpu/shmem_api.h"

namespace ferry::cpu {

// As HostPacer, and lets the network progress. Processes are often more than cores, so it yields soon.
class ShmemPacer {
 public:
  explicit ShmemPacer(Clock::duration deadline) : deadline_(deadline) {}

  Pace pause() {
    shmem::progress();
    if (++turns_ < kSpins) return Pace::again;
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (turns_ == kSpins) started_ = now;
    return now - started_ >= deadline_ ? Pace::expired : Pace::look_for_abort;
  }

 private:
  static constexpr std::int64_t kSpins = 16;
  Clock::duration deadline_;
  Clock::time_point started_{};
  std::int64_t turns_ = 0;
};

}  // namespace ferry::cpu
