// PaceClock: tells a polling thread when to read the clock, and whether its deadline has passed. The counter of polls
// wraps around within an hour; the clock does not.
#pragma once

#include <cstdint>

#include "ferry/formats/portable.h"

namespace ferry::cuda {

class PaceClock {
 public:
  FERRY_HD explicit PaceClock(std::uint64_t deadline_ns) : deadline_ns_(deadline_ns) {}
  // Counts a poll. True: read the clock now.
  FERRY_HD bool is_time_to_look() { return ++turns_ % kLookEvery == 0; }
  // The first reading starts the wait.
  FERRY_HD bool has_expired(std::uint64_t now_ns) {
    if (started_ns_ == 0) started_ns_ = now_ns;
    return now_ns - started_ns_ >= deadline_ns_;
  }
  FERRY_HD bool has_looked() const { return started_ns_ != 0; }
  FERRY_HD std::uint64_t waited_ns(std::uint64_t now_ns) const { return now_ns - started_ns_; }
  FERRY_HD std::uint32_t turns() const { return turns_; }

 private:
  static constexpr std::uint32_t kLookEvery = 64;
  std::uint64_t deadline_ns_;
  std::uint64_t started_ns_ = 0;
  std::uint32_t turns_ = 0;
};

}  // namespace ferry::cuda
