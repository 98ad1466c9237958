// The times of a run, by phase.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace ferry::app {

// The seconds of each phase on its slowest rank, for each pass of each round.
class Timing {
 public:
  using Clock = std::chrono::steady_clock;
  Timing(std::int64_t rounds, int repeats)
      : passes_(1 + repeats), seconds_(static_cast<std::size_t>(rounds * passes_) * kPhases) {}
  enum Phase { kDispatch, kExperts, kCombine, kPhases };
  struct Pass {
    std::int64_t round;
    int number;  // 0: with the experts
  };
  void add(const Pass& pass, Phase phase, Clock::time_point start);
  std::span<double> all() { return seconds_; }
  // Over the rounds. Where passes were repeated, a round counts with the median of the repeats.
  double total(Phase phase) const;

 private:
  const int passes_;
  std::mutex guard_;
  std::vector<double> seconds_;
};

}  // namespace ferry::app
