#include "cpu/calls/exchange_stats.h"

namespace ferry::cpu {

Stats ExchangeStats::read() const {
  Stats stats;
  stats.ranks = ranks_;
  stats.local_experts = local_experts_;
  stats.received.resize(rows_of_format_);
  for (std::size_t i = 0; i < received_.size(); ++i) {
    const std::uint64_t rows = load_relaxed(received_[i]);
    stats.received[i % rows_of_format_].tokens += rows;
    stats.received[i % rows_of_format_].bytes += rows * row_bytes_[i / rows_of_format_];
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
