// What one line of `ferry bench` measures, and what comes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ferry/exchange.h"
#include "tool/bench/base/bench_wire.h"

namespace ferry::app {

class BenchTrace;

enum class BenchOperation { pair, dispatch, combine, encode, decode };
enum class RoutingKind { uniform, zipf };

const char* to_string(BenchOperation operation);
const char* to_string(RoutingKind kind);
constexpr bool is_codec(BenchOperation operation) {
  return operation == BenchOperation::encode || operation == BenchOperation::decode;
}

// How long to measure: a fixed number of iterations, or as many as fit `seconds`, but never fewer than the fewest or
// more than the most.
struct BenchEffort {
  int iterations = 0;
  double seconds = 2.0;
};
inline constexpr int kFewestIterations = 11;
inline constexpr int kMostIterations = 100'000;
// On GPUs, of a CUDA graph of many iterations.
inline constexpr int kFewestReplays = 21;
inline constexpr int kMostReplays = 400;

// Returns how many iterations to run next, after `done` iterations that took `seconds`; 0: done. Early times are
// unreliable, so a step never exceeds the iterations run so far. All ranks pass the same numbers.
int next_iterations(const BenchEffort& effort, int done, double seconds);
// Rounds of ranks on the host before the first that counts.
inline constexpr int kHostWarmUps = 3;
// How many there will be in all, as far as the same numbers tell.
int expected_iterations(const BenchEffort& effort, int done, double seconds);

// " (--seconds 2)": what a measurement is to take, for lines that say how far it is.
std::string effort_text(const BenchEffort& effort);

struct BenchCase {
  BenchOperation operation = BenchOperation::pair;
  std::string model;  // empty: a free shape
  Shape shape;        // max_tokens is the n of every rank
  AnyFormat format = format_named("bf16");
  Reduction reduction = Reduction::by_rank;  // of combines
  bool chooses = false;                      // the exchange is made with either, and each combine says its reduction
  bool names_reduction = false;              // records say that of the exchange
  int message_copies = 2;
  bool names_copies = false;  // they are a column
  RowOrder rows = RowOrder::by_expert;
  bool names_rows = false;                   // the order of rows is a column
  AnyFormat results = format_named("bf16");  // in which results travel
  bool names_results = false;                // it is a column
  bool encoded = false;                      // tokens are given in the format
  bool replays = false;                      // dispatches repeat the routing of an earlier one, by its handle
  RoutingKind routing = RoutingKind::uniform;
  double zipf_exponent = 1.0;
  int workers = 1;       // CPU ranks
  int max_blocks = 0;    // GPU ranks; 0: no limit
  int wait_blocks = -1;  // GPU ranks: of second halves; -1: calls are whole
  BenchEffort effort;
  BenchTrace* trace = nullptr;  // takes a few more rounds; null: there are none
};

// The bytes that all ranks together must read or write in one iteration, by what they are (docs/lab/cpu-tables.md).
struct BenchBytes {
  double tokens = 0;    // the caller's tokens, bf16 or encoded, read by dispatch
  double messages = 0;  // written at the destination and read there
  double rows = 0;      // payload and scales, written by dispatch
  double results = 0;   // the experts' bf16 rows, read by combine
  double partials = 0;  // written at the source and read there; with the exact reduction, whole rows
  double output = 0;    // the reduced tokens, written by combine

  double dispatched() const { return tokens + 2 * messages + rows; }
  double combined() const { return results + 2 * partials + output; }
  double moved(BenchOperation operation) const {
    if (operation == BenchOperation::dispatch) return dispatched();
    if (operation == BenchOperation::combine) return combined();
    return dispatched() + combined();
  }
};

std::string combine_name(const BenchCase& bench);  // "exact", or "exact of either"
// What the exchange of a line is made with; the rest of its options is the backend's.
ExchangeOptions exchange_options(const BenchCase& bench);

// One time per iteration. Each measurement says what a time is.
struct BenchSamples {
  std::vector<double> seconds;

  double at(double fraction) const;  // 0.5: the median; nearest rank
};

struct BenchMeasurement {
  BenchSamples samples;
  BenchBytes bytes;
  int input_sets = 0;            // inputs and outputs that the iterations take in turn
  double set_bytes = 0;          // of all input sets and ranks together
  std::size_t memory_bytes = 0;  // symmetric memory of the exchange on each rank
  WireSpeed wire;                // measured between the iterations; not for codecs
  double meeting_seconds = 0;    // the least in which all ranks told each other that they were there
  // What the ranks counted for each other in a round, all together, the mean over the rounds; pair and combine only.
  double messages_sent = 0;
  double bytes_sent = 0;
};

}  // namespace ferry::app
