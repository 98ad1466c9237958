// TraceLog: what a Trace has recorded. Exchanges on any thread add to the one that records.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exchange/calls/call_trace.h"
#include "ferry/detail/base/order.h"
#include "ferry/trace.h"

namespace ferry {

// An exchange of one rank, as traces name it.
struct TracedExchange {
  int rank = 0;
  int ranks = 0;
  std::uint64_t number = 0;  // among those of this rank in this process, from 1
  std::string about;         // shape and formats
};
// With the next number of the rank.
TracedExchange traced_exchange(int rank, int ranks, std::string about);

class TraceLog {
 public:
  explicit TraceLog(std::size_t most_calls) : most_calls_(most_calls) {}

  // `kernels`: null where the exchange has none.
  void add(const TracedExchange& exchange, TracedCall call, const std::shared_ptr<KernelTimes>& kernels);
  void stop();
  std::string events() const;

 private:
  bool has(const TracedKernel& kernel) const;

  struct Exchange {
    TracedExchange facts;
    std::vector<TracedCall> calls;
    std::shared_ptr<KernelTimes> kernels;
    std::uint64_t left_out = 0;  // calls past the most
  };

  const std::size_t most_calls_;
  mutable std::mutex guard_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  std::size_t calls_ = 0;
  TraceSpan span_{TraceClock::now(), TraceClock::time_point::max()};
};

namespace detail {
extern DeviceWord<std::uint32_t> is_recording;
std::shared_ptr<TraceLog> recording_log();
}  // namespace detail

// The log that records now; null: none does, which one look at a word says.
inline std::shared_ptr<TraceLog> recording_log() {
  return load_relaxed(detail::is_recording) == 0 ? nullptr : detail::recording_log();
}

}  // namespace ferry
