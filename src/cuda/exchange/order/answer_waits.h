// How a host waits for what a kernel tells it.
#pragma once

#include <chrono>
#include <thread>

#include "ferry/detail/base/wait.h"

namespace ferry::cuda {

// Counts come within tens of microseconds where all ranks are there. After a millisecond the host leaves its core to
// others.
class AnswerPacer {
 public:
  Pace pause() {
    const auto waited = std::chrono::steady_clock::now() - start_;
    if (waited < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
      return Pace::again;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return Pace::look_for_abort;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace ferry::cuda
