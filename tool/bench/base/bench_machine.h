// What the benchmarks need of the machine: large buffers, a clock, a start line for threads, its name and cache size.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ferry/detail/base/order.h"

namespace ferry::app {

// Pages that take memory only once touched, in huge pages where the system has them: outputs are sized for the worst
// case, which the routing rarely fills.
class BenchBuffer {
 public:
  BenchBuffer() = default;
  explicit BenchBuffer(std::size_t bytes);  // throws Error(system)
  ~BenchBuffer();
  BenchBuffer(BenchBuffer&& other) noexcept;
  BenchBuffer& operator=(BenchBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Finite bf16 values of both signs and eight magnitudes, the same for the same seed.
void fill_bf16(std::byte* memory, std::size_t bytes, std::uint64_t seed);

// Lets threads start together. A thread that fails breaks the line, so that no other waits for it.
class StartLine {
 public:
  explicit StartLine(int threads) : threads_(threads) {}
  bool wait();  // false: broken
  void break_line() { store_release(broken_, 1); }

 private:
  const int threads_;
  DeviceWord<int> arrived_;
  DeviceWord<int> broken_;
  SignalWord generation_;
};

// Runs `body` on `threads` threads, this one not among them, and rethrows the first error.
void run_threads(int threads, const std::function<void(int thread)>& body);

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// When one rank began and ended. The clock is the same for all threads and processes of a host.
struct Span {
  double begin;
  double end;
};
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// By time of measurement: from the first rank's begin to the last one's end. `spans` is [rank][measurement].
std::vector<double> seconds_of(const std::vector<std::vector<Span>>& spans);

struct Hardware {
  std::string cpu;
  int cores = 0;
  std::size_t last_level_cache = 0;
  std::size_t memory = 0;
  std::string system;
};
const Hardware& this_machine();
// From now on this machine has so large a cache, whatever the system says: a virtual machine names that of its host.
void set_last_level_cache(std::size_t bytes);
// How many input sets make the iterations reach memory rather than the cache: together at least twice the last-level
// cache. `bytes` are those of one set.
int input_sets_for(double bytes);

}  // namespace ferry::app
