// How a process waits for others: it makes network progress meanwhile.
#pragma once

#include <chrono>
#include <thread>

#include "cpu/fabric/host_waits.h"
#include "shmem/process/shmem_api.h"

namespace ferry::cpu {

// As HostPacer, with network progress. There are often more processes than cores, so it yields soon. The library yields
// as well, and on a busy machine each poll may take long, so the clock runs from the first poll. After `rests_after` it
// sleeps between polls, since a thread that only yields still takes a core, perhaps from the process that it waits for.
class ShmemPacer {
 public:
  explicit ShmemPacer(Clock::duration deadline, Clock::duration rests_after = Clock::duration::max())
      : deadline_(deadline), rests_after_(rests_after) {}

  Pace pause() {
    shmem::progress();
    const bool yields = ++turns_ >= kSpins;
    if (yields) std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (turns_ == 1) started_ = now;
    if (now - started_ >= deadline_) return Pace::expired;
    if (now - started_ >= rests_after_) std::this_thread::sleep_for(kRest);
    return yields ? Pace::look_for_abort : Pace::again;
  }

 private:
  static constexpr std::int64_t kSpins = 16;
  static constexpr std::chrono::microseconds kRest{200};
  Clock::duration deadline_;
  Clock::duration rests_after_;
  Clock::time_point started_{};
  std::int64_t turns_ = 0;
};

}  // namespace ferry::cpu
