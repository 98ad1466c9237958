#include "cpu/calls/exchange_stats.h"

namespace ferry::cpu {

Stats ExchangeStats::read() const {
  Stats stats;
  stats.ranks = ranks_;
  stats.local_experts = local_experts_;
  for (const Counter& counter : received_) {
    const std::uint64_t rows = load_relaxed(counter);
    stats.received.push_back({rows, rows * row_bytes_});
  }
  for (const Counter& counter : messages_) stats.messages_sent.push_back(load_relaxed(counter));
  for (const Counter& counter : bytes_) stats.bytes_sent.push_back(load_relaxed(counter));
  stats.non_finite_blocks = load_relaxed(non_finite_);
  stats.dropped = load_relaxed(dropped_);
  stats.dispatches = load_relaxed(dispatches_);
  stats.combines = load_relaxed(combines_);
  return stats;
}

}  // namespace ferry::cpu
