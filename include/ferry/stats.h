// Statistics of an exchange on one rank: read at any time, also while a round is open. Counts since it was made.
#pragma once

#include <cstdint>
#include <vector>

namespace ferry {

struct ExpertTraffic {
  std::uint64_t tokens = 0;  // rows laid out
  std::uint64_t bytes = 0;   // their payload and scales
};

struct Stats {
  int ranks = 0;
  int local_experts = 0;
  std::vector<ExpertTraffic> received;       // [ranks, local_experts]: by source rank and local expert
  std::vector<std::uint64_t> messages_sent;  // [ranks]: messages to each rank, this one included
  // [ranks]: messages, routing and results written at each rank. On GPUs a dispatch with a handle writes its routing,
  // too
  std::vector<std::uint64_t> bytes_sent;
  std::vector<std::uint64_t> waited_ns;  // [ranks]: time spent waiting for each rank
  std::uint64_t non_finite_blocks = 0;   // blocks (bf16: rows) with a NaN or an infinity among the tokens sent
  std::uint64_t dropped = 0;             // (token, k) entries, by counts (token, rank), for a masked rank
  std::uint64_t dispatches = 0;
  std::uint64_t combines = 0;

  const ExpertTraffic& from(int source, int local_expert) const {
    return received[static_cast<std::size_t>(source) * static_cast<std::size_t>(local_experts) +
                    static_cast<std::size_t>(local_expert)];
  }
};

}  // namespace ferry
