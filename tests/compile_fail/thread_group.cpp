// A thread group must offer the largest value over neighbouring threads.
// expected-error: constraints not satisfied
// expected-error: g.template max_over<1>(value)
#include "ferry/formats/thread_group.h"

struct Pair {
  static constexpr int kWidth = 2;
  int thread() const { return 0; }
  int size() const { return 2; }
  void sync() const {}
#ifndef FERRY_BREAK
  template <int kThreads>
  std::uint32_t max_over(std::uint32_t value) const {
    return value;
  }
#endif
};

template <ferry::ThreadGroup G>
struct Needs {};

int main() { [[maybe_unused]] const Needs<Pair> needs; }
