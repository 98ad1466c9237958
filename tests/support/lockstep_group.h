// LockstepGroup: a thread group of real threads on the CPU. Runs are kWidth neighbours, as a warp is on a GPU.
#pragma once

#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "ferry/formats/thread_group.h"

namespace ferry::test {

struct LockstepState {
  explicit LockstepState(int threads) : together(threads), values(static_cast<std::size_t>(threads)) {}
  std::barrier<> together;
  std::vector<std::uint32_t> values;
};

template <int kThreadsInRun>
class LockstepGroup {
 public:
  static constexpr int kWidth = kThreadsInRun;

  LockstepGroup(LockstepState& state, int thread) : state_(&state), thread_(thread) {}
  int thread() const { return thread_; }
  int size() const { return static_cast<int>(state_->values.size()); }
  void sync() const { state_->together.arrive_and_wait(); }

  template <int kThreads>
  std::uint32_t max_over(std::uint32_t value) const {
    static_assert(kThreads <= kWidth, "a run of threads is at most kWidth");
    state_->values[static_cast<std::size_t>(thread_)] = value;
    sync();
    std::uint32_t largest = 0;
    const int first = thread_ / kThreads * kThreads;
    for (int other = first; other < first + kThreads; ++other) {
      const std::uint32_t theirs = state_->values[static_cast<std::size_t>(other)];
      largest = theirs > largest ? theirs : largest;
    }
    sync();
    return largest;
  }

 private:
  LockstepState* state_;
  int thread_;
};
static_assert(ThreadGroup<LockstepGroup<32>>);

// Calls body(group) on `threads` threads and waits for all.
template <int kWidth, class Body>
void run_lockstep(int threads, const Body& body) {
  LockstepState state(threads);
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&state, &body, thread] { body(LockstepGroup<kWidth>(state, thread)); });
  for (std::thread& one : running) one.join();
}

}  // namespace ferry::test
