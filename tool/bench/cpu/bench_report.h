// What `ferry bench` says: a table for people, JSON lines for programs and for benchmarks/results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tool/bench/base/bench_case.h"
#include "tool/bench/mpi/bench_baseline.h"
#include "tool/text/json.h"

namespace ferry::app {

// What the bound allows the bytes, as on GPUs.
inline constexpr double kBoundFactor = 1.10;

struct BenchResult {
  BenchCase bench;
  BenchMeasurement measured;
  std::optional<BaselineMeasurement> baseline;

  // Seconds that the bytes need at the speed of the wire.
  double floor_seconds() const { return measured.bytes.moved(bench.operation) / measured.wire.bytes_per_second; }
  // A meeting of all ranks for each phase.
  double meetings_seconds() const {
    return (bench.operation == BenchOperation::pair ? 2 : 1) * measured.meeting_seconds;
  }
  // These, and kBoundFactor times the floor (docs/lab/cpu-tables.md).
  double bound_seconds() const { return meetings_seconds() + kBoundFactor * floor_seconds(); }
  // Ranks meet in a round, too, so it takes longer, unless other work disturbed every meeting that was measured.
  bool meetings_were_disturbed() const { return meetings_seconds() > measured.samples.at(0.5); }
};

double rounded(double value, double per_unit);  // to `per_unit` steps, so that records stay short
double micros(double seconds);                  // of a record

// What every record begins with: date, hardware, command, what was measured; and how shapes and times are said.
Json record_head(const char* backend, const BenchCase& bench, const std::string& command);
Json shape_json(const BenchCase& bench);
Json times_json(const BenchSamples& samples);
// What the exchange of a line is asked for, beside the policy of its backend.
void add_exchange(Json& policy, const BenchCase& bench);

// One record, complete by itself: date, hardware, command, shape, policy, times, bytes, wire, baseline.
Json to_json(const BenchResult& result, const std::string& command);

// "ranks=2 experts=64 ...", the wire and how times are taken; then the results of one shape as a table.
std::string to_text(const std::vector<BenchResult>& results);
// What the columns of that table mean.
std::string footnote_of(const std::vector<BenchResult>& results);

}  // namespace ferry::app
