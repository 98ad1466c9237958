// Names and percentiles of the benchmark.
#include "tool/bench/base/bench_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ferry::app {

const char* to_string(BenchOperation operation) {
  switch (operation) {
    case BenchOperation::pair:
      return "pair";
    case BenchOperation::dispatch:
      return "dispatch";
    case BenchOperation::combine:
      return "combine";
    case BenchOperation::encode:
      return "encode";
    case BenchOperation::decode:
      return "decode";
  }
  return "unknown";
}

const char* to_string(RoutingKind kind) { return kind == RoutingKind::uniform ? "uniform" : "zipf"; }

std::string effort_text(const BenchEffort& effort) {
  return effort.iterations > 0 ? fmt::format(" (--iterations {})", effort.iterations)
                               : fmt::format(" (--seconds {:g})", effort.seconds);
}

int expected_iterations(const BenchEffort& effort, int done, double seconds) {
  if (effort.iterations > 0) return effort.iterations;
  const double fitting = effort.seconds * done / std::max(seconds, 1e-7 * done);
  return static_cast<int>(std::clamp(fitting, double{kFewestIterations}, double{kMostIterations}));
}

int next_iterations(const BenchEffort& effort, int done, double seconds) {
  if (effort.iterations > 0) return effort.iterations - done;
  if (done < kFewestIterations) return kFewestIterations - done;
  if (seconds >= effort.seconds) return 0;
  return std::min(expected_iterations(effort, done, seconds) - done, done);
}

double BenchSamples::at(double fraction) const {
  if (seconds.empty()) return 0;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const double position = std::ceil(fraction * static_cast<double>(sorted.size())) - 1;
  const auto index = static_cast<std::size_t>(std::max(position, 0.0));
  return sorted[std::min(index, sorted.size() - 1)];
}

std::string combine_name(const BenchCase& bench) {
  return std::string(to_string(bench.reduction)) + (bench.chooses ? " of either" : "");
}

ExchangeOptions exchange_options(const BenchCase& bench) {
  ExchangeOptions options;
  options.format = bench.format;
  options.reduction = bench.chooses ? Reduction::either : bench.reduction;
  options.message_copies = bench.message_copies;
  options.result_format = bench.results;
  if (bench.rows != RowOrder::by_expert) options.row_orders = {bench.rows};
  return options;
}

}  // namespace ferry::app
