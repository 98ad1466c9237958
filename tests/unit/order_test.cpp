// The atomic accesses: a release publishes what came before it, to whoever acquires.
#include "ferry/detail/base/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace ferry {
namespace {

TEST(Order, AReleaseCarriesWhatCameBeforeIt) {
  constexpr Epoch kTurns = 2000;
  SignalWord there, back;
  std::uint64_t data[2] = {};
  std::thread reader([&] {
    for (Epoch turn = 1; turn <= kTurns; ++turn) {
      while (load_acquire(there) < turn) std::this_thread::yield();
      ASSERT_EQ(data[turn & 1], turn * 3);
      store_release(back, turn);
    }
  });
  for (Epoch turn = 1; turn <= kTurns; ++turn) {
    while (turn > 2 && load_acquire(back) < turn - 2) std::this_thread::yield();
    data[turn & 1] = turn * 3;
    store_release(there, turn);
  }
  reader.join();
}

TEST(Order, TicketsAreDistinctAndTheLastSeesAll) {
  constexpr std::uint32_t kThreads = 4;
  DeviceWord<std::uint32_t> tickets;
  DeviceWord<std::uint64_t> counted;
  std::vector<int> done(kThreads, 0);
  std::vector<std::thread> threads;
  int seen_by_last = -1;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      done[i] = 1;
      fetch_add_relaxed(counted, std::uint64_t{10});
      if (fetch_add_acq_rel(tickets, 1u) != kThreads - 1) return;
      int sum = 0;
      for (const int each : done) sum += each;
      seen_by_last = sum;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen_by_last, static_cast<int>(kThreads));
  EXPECT_EQ(load_relaxed(counted), 10u * kThreads);
}

TEST(Order, EveryBitThatIsSetStaysAndOneThreadSeesItSetBefore) {
  constexpr int kThreads = 4;
  BlockWord<std::uint32_t> bits;
  DeviceWord<std::uint32_t> second;  // that met the common bit set
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 7; ++turn) fetch_or_relaxed(bits, 1u << (7 * i + turn));
      if ((fetch_or_relaxed(bits, 1u << 31) >> 31) != 0) fetch_add_relaxed(second, 1u);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(load_relaxed(bits), 0x8FFFFFFFu);
  EXPECT_EQ(load_relaxed(second), kThreads - 1u);
}

TEST(Order, TheLargestValueStays) {
  constexpr std::uint64_t kThreads = 4, kTurns = 1000;
  DeviceWord<std::uint64_t> most;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      std::uint64_t seen = 0;
      for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
        const std::uint64_t value = (turn * 7 + i) % kTurns * kThreads + i;  // up and down
        const std::uint64_t before = fetch_max_relaxed(most, value);
        EXPECT_GE(before, seen);
        seen = std::max(before, value);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(load_relaxed(most), kTurns * kThreads - 1);
}

}  // namespace
}  // namespace ferry
