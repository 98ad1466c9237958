// ThreadGroup: the threads that do one piece of work together. A CPU thread alone, a warp, or a block.
#pragma once

#include <concepts>
#include <cstdint>

#include "ferry/formats/portable.h"

namespace ferry {

// `kWidth` is known when compiling, so a codec can spread one block of a row over neighbouring threads.
template <class G>
concept ThreadGroup = requires(const G& g, std::uint32_t value) {
  { G::kWidth } -> std::convertible_to<int>;
  { g.thread() } -> std::same_as<int>;  // 0 .. size()-1
  { g.size() } -> std::same_as<int>;
  g.sync();  // all threads of the group arrive; what they wrote before is seen by all after
  // max_over<n>: the largest value of n neighbouring threads, the first of which is a multiple of n.
  { g.template max_over<1>(value) } -> std::same_as<std::uint32_t>;
};

// One thread alone: the CPU's group.
struct SerialGroup {
  static constexpr int kWidth = 1;
  FERRY_HD constexpr int thread() const { return 0; }
  FERRY_HD constexpr int size() const { return 1; }
  FERRY_HD constexpr void sync() const {}
  template <int kThreads>
  FERRY_HD constexpr std::uint32_t max_over(std::uint32_t value) const {
    static_assert(kThreads == 1, "a SerialGroup has one thread");
    return value;
  }
};
static_assert(ThreadGroup<SerialGroup>);

}  // namespace ferry
