// AllBegin: a call that all ranks make must end only when all have begun it (I1).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace ferry::test {

class AllBegin {
 public:
  explicit AllBegin(int ranks) : begun_(static_cast<std::size_t>(ranks)) {}

  // A rank's call number `turn`, from 0 on. In each turn another rank is late.
  void check(int rank, int turn, const std::function<void()>& call) {
    const auto own = static_cast<std::size_t>(rank);
    if (own == static_cast<std::size_t>(turn) % begun_.size())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    begun_[own] = turn + 1;
    call();
    for (const auto& each : begun_) EXPECT_GE(each.load(), turn + 1);
  }

 private:
  std::vector<std::atomic<int>> begun_;
};

}  // namespace ferry::test
