// What one source's round puts on the wire, counted by running the steps of ferry/detail/protocol over a fabric that
// carries nothing. So no size and no rule of the protocol is written a second time.
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/detail/protocol/contracts/token_lookup.h"
#include "tool/bench/base/bench_routing.h"

namespace ferry::app {

// From one rank to another. An operation is a call of the fabric: a put, a put with its signal, or a signal.
struct PairTraffic {
  std::uint64_t messages = 0;  // encoded tokens, or results
  std::uint64_t message_bytes = 0;
  std::uint64_t table_bytes = 0;  // routing table and header, the same for every rank
  std::uint64_t count_bytes = 0;  // counts of the destination's experts
  std::uint64_t operations = 0;
  std::uint64_t signals = 0;

  std::uint64_t put_bytes() const { return message_bytes + table_bytes + count_bytes; }
  std::uint64_t bytes() const { return put_bytes() + signals * sizeof(SignalWord); }
};

struct SourceTraffic {
  std::vector<PairTraffic> dispatched;  // [ranks]: from the source to each rank
  std::vector<PairTraffic> returned;    // [ranks]: from each rank to the source
  std::vector<PairTraffic> closed;      // [ranks]: from the source to each rank, at the end of the round
};

// One source after another: its table, what travels for it, and whom its tokens name.
class SourceRound {
 public:
  // Throws Error(invalid_argument) where shape and options do not fit.
  // `combine`: by_rank or exact.
  SourceRound(const Shape& shape, const ExchangeOptions& options, Reduction combine);

  // Makes the table of `source` as dispatch does; id -1 is no expert. `routing` stays until the next call.
  void route(int source, const Routing& routing);

  // Adds what the source routed last sends.
  void count(SourceTraffic& traffic);
  NamedRanks named(int token) const;      // ascending
  std::uint64_t entries(int rank) const;  // (token, k) entries for the experts of `rank`

  int num_tokens() const { return num_tokens_; }
  const Plan& plan() const { return plan_; }

 private:
  const RoutingEntry* entries_of(int token) const;
  DispatchArgs args() const;

  Plan plan_;
  std::vector<std::uint8_t> masked_;
  std::vector<RoutingEntry> table_;
  std::vector<std::uint32_t> sent_counts_;
  std::vector<std::byte> message_;  // never filled
  const Routing* routing_ = nullptr;
  int num_tokens_ = 0;
};

}  // namespace ferry::app
