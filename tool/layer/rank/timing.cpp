#include "tool/layer/rank/timing.h"

#include <algorithm>

namespace ferry::app {

void Timing::add(const Pass& pass, Phase phase, Clock::time_point start) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::lock_guard lock(guard_);
  double& slowest = seconds_[static_cast<std::size_t>(pass.round * passes_ + pass.number) * kPhases + phase];
  slowest = std::max(slowest, seconds);
}

double Timing::total(Phase phase) const {
  double sum = 0;
  const bool repeated = passes_ > 1 && phase != kExperts;
  constexpr std::size_t of_pass = kPhases;
  const std::size_t of_round = static_cast<std::size_t>(passes_) * of_pass;
  for (std::size_t begin = 0; begin < seconds_.size(); begin += of_round) {
    std::vector<double> counted;
    const std::size_t end = begin + (repeated ? of_round : of_pass);
    for (std::size_t i = begin + phase + (repeated ? of_pass : 0); i < end; i += of_pass)
      counted.push_back(seconds_[i]);
    const auto middle = counted.begin() + static_cast<std::ptrdiff_t>(counted.size() / 2);
    std::nth_element(counted.begin(), middle, counted.end());
    sum += *middle;
  }
  return sum;
}

}  // namespace ferry::app
