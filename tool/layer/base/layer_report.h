// What a run of a layer took and sent.
#pragma once

#include <cstdint>
#include <vector>

namespace ferry::app {

struct LayerReport {
  std::int64_t rounds = 0;
  double dispatch_seconds = 0;  // each round counts with its slowest rank; without copies between host and GPU
  double expert_seconds = 0;
  double combine_seconds = 0;
  std::uint64_t message_bytes = 0;              // of one token on the wire
  std::uint64_t messages = 0;                   // to ranks other than the token's own
  std::uint64_t dispatch_bytes = 0;             // messages * message_bytes
  std::uint64_t wire_bytes = 0;                 // all that ranks wrote at other ranks: messages, routing and results
  std::uint64_t rows = 0;                       // that experts worked on
  std::uint64_t non_finite_blocks = 0;          // in the tokens
  std::vector<std::uint64_t> messages_between;  // [ranks, ranks]: from source to expert rank, to itself included
};

}  // namespace ferry::app
