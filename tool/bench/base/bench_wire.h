// The wire of CPU ranks: how fast all of them at once copy from their own memory to a peer's.
#pragma once

#include <cstddef>
#include <vector>

#include "tool/bench/base/bench_machine.h"

namespace ferry::app {

struct WireSpeed {
  double bytes_per_second = 0;  // of all threads together, reads and writes both counted
  const char* method = "";      // the fastest of those tried
  int threads = 0;
  int repetitions = 0;
  double spread = 1;  // seconds of the slow repetitions over those of the fast ones: p90 / p10
};

// Buffers that together are several times the last-level cache, and the way to copy between them that is fastest here.
class Wire {
 public:
  Wire(int ranks, int workers);  // tries the ways

  static std::size_t memory_bytes(int ranks, int workers);  // that such a one takes
  bool is_of(int ranks, int workers) const { return ranks == ranks_ && workers == workers_; }

  // One streaming copy by all workers of a rank, from their own buffers to the next rank's. All ranks call it at once.
  void copy(int rank) const;

  // The speed of repetitions that took `seconds` each, from the first rank's begin to the last one's end.
  WireSpeed speed(const std::vector<double>& seconds) const;

 private:
  using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
  static std::size_t bytes_of_thread(int threads);
  double median_seconds(Copy way) const;
  void copy_by(Copy way, int thread) const;

  int ranks_;
  int workers_;
  std::size_t bytes_;  // of one thread's buffer
  std::vector<BenchBuffer> from_;
  std::vector<BenchBuffer> to_;
  Copy copy_ = nullptr;
  const char* method_ = "";
};

}  // namespace ferry::app
