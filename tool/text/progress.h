// Progress on standard error, for work that takes longer than two seconds: one line that is rewritten on a terminal,
// plain lines at a slower pace elsewhere. Shorter work prints nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace ferry::app {

class Progress {
 public:
  // `what` is a short phrase, such as "layer: tokens"; `total` is how many steps there are.
  Progress(std::string what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t steps = 1);  // from any thread

 private:
  using Clock = std::chrono::steady_clock;
  void show(Clock::time_point now);

  const std::string what_;
  const std::int64_t total_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::int64_t done_ = 0;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace ferry::app
