// ExchangeStats: the counters behind Exchange::stats(). Written by the rank's workers, read by anyone at any time.
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/detail/base/order.h"
#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/stats.h"

namespace ferry::cpu {

class ExchangeStats {
 public:
  using Counter = DeviceWord<std::uint64_t>;

  // `row_bytes`: of a row in each format of the exchange.
  ExchangeStats(int ranks, int local_experts, const std::vector<std::uint64_t>& row_bytes)
      : ranks_(ranks),
        local_experts_(local_experts),
        row_bytes_(row_bytes),
        rows_of_format_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(local_experts)),
        received_(row_bytes.size() * rows_of_format_),
        messages_(static_cast<std::size_t>(ranks)),
        bytes_(static_cast<std::size_t>(ranks)) {}

  // Of the rows that are counted from now on.
  void take_format(int format) { first_ = static_cast<std::size_t>(format) * rows_of_format_; }
  void add_received(int source, int local, std::uint64_t rows) {
    add(received_[first_ + static_cast<std::size_t>(source) * static_cast<std::size_t>(local_experts_) +
                  static_cast<std::size_t>(local)],
        rows);
  }
  void add_messages(int peer, std::uint64_t count) { add(messages_[static_cast<std::size_t>(peer)], count); }
  void add_bytes(int peer, std::uint64_t count) { add(bytes_[static_cast<std::size_t>(peer)], count); }
  void add_non_finite(std::uint64_t count) { add(non_finite_, count); }
  void add_dropped(std::uint64_t count) { add(dropped_, count); }
  void add_dispatch() { add(dispatches_, 1); }
  void add_combine() { add(combines_, 1); }

  // `waited_ns` is filled by the caller, from the fabric.
  Stats read() const;

 private:
  static void add(Counter& counter, std::uint64_t count) {
    if (count != 0) fetch_add_relaxed(counter, count);
  }

  int ranks_;
  int local_experts_;
  std::vector<std::uint64_t> row_bytes_;  // [formats]
  std::size_t rows_of_format_;            // counters of a format
  std::size_t first_ = 0;                 // counter of the format that was taken; read() does not look at it
  std::vector<Counter> received_;         // [formats, ranks, local experts]
  std::vector<Counter> messages_;
  std::vector<Counter> bytes_;
  Counter non_finite_;
  Counter dropped_;
  Counter dispatches_;
  Counter combines_;
};

// The rows that a dispatch laid out.
inline void count_received(ExchangeStats& stats, const Plan& plan, const RowStarts& starts) {
  const int experts = plan.local_experts();
  for (int source = 0; source < plan.shape.ranks; ++source) {
    for (int local = 0; local < experts && !plan.is_masked(source); ++local) {
      const std::uint32_t end = source + 1 < plan.shape.ranks ? starts.of_source[(source + 1) * experts + local]
                                                              : starts.filled[local + plan.shared_groups];
      stats.add_received(source, local, end - starts.of_source[source * experts + local]);
    }
  }
}

}  // namespace ferry::cpu
