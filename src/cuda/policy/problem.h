// What a launch policy is chosen from: the limits of the device, the problem of the call, and what follows from them.
// Records of the constants in this folder: "log" is docs/lab/performance-log.md with a section of it, a .jsonl file is
// one of benchmarks/results with lines of it. A constant without a record says so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "ferry/row_order.h"

namespace ferry::cuda {

// How many blocks of a kernel a device can hold at once.
struct DeviceLimits {
  int multiprocessors = 0;
  int blocks_per_multiprocessor = 0;
  int max_blocks = 0;        // from the caller's max_blocks, the exchange's `concurrent` and the ranks of the device
  bool is_exclusive = true;  // no kernel of another exchange runs at the same time
  constexpr int blocks() const { return std::min(multiprocessors * blocks_per_multiprocessor, max_blocks); }
};

// I21. Kernels of `exchanges` exchanges run at the same time and wait for each other. Together they have no more thread
// blocks than there are multiprocessors. So one multiprocessor is empty for each block that is still to come, whatever
// the blocks take of theirs.
// The same holds of kernels of other libraries that wait for peers, for which `reserved` multiprocessors are left.
constexpr int max_resident_blocks(int multiprocessors, int blocks_per_multiprocessor, int exchanges, int reserved = 0) {
  if (exchanges == 1 && reserved == 0) return multiprocessors * blocks_per_multiprocessor;
  return multiprocessors > reserved ? (multiprocessors - reserved) / exchanges : 0;
}

// Each block can have a multiprocessor, and as many multiprocessors are left to other kernels.
constexpr bool has_few_blocks(const DeviceLimits& limits) { return 2 * limits.blocks() <= limits.multiprocessors; }

// What a call has to do.
struct Problem {
  int ranks = 1;
  int num_tokens = 0;       // of this rank
  int arrivals = 0;         // about how many messages arrive here, and how many results leave
  int table_parts = 1;      // of the routing table, which routing blocks share
  bool counts_all = false;  // one routing block can count all parts (one_block_counts_all)
  int buffer_teams = 1;     // teams of a block that have a buffer in shared memory
  bool sends = true;
  bool receives = true;
  int hidden = 0;
  int result_bytes = 0;           // of a combine; 0: as many as a bf16 row
  bool reads_rows_twice = false;  // a result has a scale, which its sender finds first
  int message_bytes = 0;
  int groups = 0;  // of rows at this rank
  int top_k = 1;
  double local_fraction = 1;             // of a token's experts, those in this world: with skip_a2a, this rank's
  RowOrder order = RowOrder::by_expert;  // of the rows that a dispatch writes, or a combine reads
  int scale_words = 0;                   // of a row that the scales kernel can store (scattered_scale_words)
  bool has_remote_ranks = false;         // some ranks are reached by puts only
  bool exact = false;                    // every row is a result
  bool may_copy_results = false;         // results travel as rows are: bf16, and the GPU has bulk copies
  bool has_pipeline = false;             // there is a combine kernel whose rows come through shared memory
  bool can_pair_blocks = false;          // two blocks of dispatch can be one thread block
};

// What bounds a call. A policy has one function for each regime; dispatch_regime and combine_regime choose it.
enum class Regime {
  receive_only,  // the other half of a split call
  few_tokens,    // latency of one token: a block for each
  some_tokens,   // links, that are not full yet
  many_tokens,   // links, full
  few_blocks,    // multiprocessors
  one_rank,      // memory: there are no links
  remote,        // the network: some ranks are reached by puts only
};
constexpr std::string_view to_string(Regime regime) {
  switch (regime) {
    case Regime::receive_only:
      return "receive only";
    case Regime::few_tokens:
      return "few tokens";
    case Regime::some_tokens:
      return "some tokens";
    case Regime::many_tokens:
      return "many tokens";
    case Regime::few_blocks:
      return "few blocks";
    case Regime::one_rank:
      return "one rank";
    case Regime::remote:
      return "remote";
  }
  return "none";
}

// Polling loads contend with incoming stores, so waiting threads back off where many messages arrive. With few, a
// backoff costs a fifth of a microsecond (log: Whole lines).
inline constexpr int kMinArrivalsToBackOff = 256;
constexpr bool backs_off(const Problem& problem) { return problem.arrivals >= kMinArrivalsToBackOff; }

// Expected values, where all experts are equally likely. Ranks that have experts of a token:
constexpr double expected_ranks(const Problem& problem) {
  double none = 1;  // probability that a certain rank has none of them
  for (int k = 0; k < problem.top_k; ++k) none *= 1 - 1.0 / problem.ranks;
  return problem.ranks * (1 - none);
}
// Other ranks that a token goes to.
constexpr double expected_peers(const Problem& problem) {
  return expected_ranks(problem) * (problem.ranks - 1) / problem.ranks;
}
// Rows of a token at all ranks of this world.
constexpr double expected_rows(const Problem& problem) { return problem.top_k * problem.local_fraction; }
// Rows that a dispatch writes for a token, at all ranks of this world.
constexpr double written_rows(const Problem& problem) {
  if (problem.order == RowOrder::in_place) return 0;
  return problem.order == RowOrder::by_source ? expected_ranks(problem) * problem.local_fraction
                                              : expected_rows(problem);
}
// Rows of a token that a combine reads, at all ranks of this world.
constexpr double combined_rows(const Problem& problem) {
  return problem.order == RowOrder::by_source ? expected_ranks(problem) * problem.local_fraction
                                              : expected_rows(problem);
}
// Results of a token.
constexpr double expected_results(const Problem& problem) {
  return problem.exact ? problem.top_k : expected_ranks(problem);
}

}  // namespace ferry::cuda
