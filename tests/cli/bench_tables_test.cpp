// No line of the tables of `ferry bench` is longer than kLineWidth, whatever its options: every table with every set of
// columns, its longest names and numbers, where its rows say the same and where each says something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tool/bench/cpu/bench_report.h"
#include "tool/bench/gpu/bench_gpu.h"
#include "tool/bench/processes/bench_processes.h"
#include "tool/simulate/simulate_report.h"
#include "tool/text/output.h"

namespace ferry::app {
namespace {

constexpr double kLongSeconds = 99.9999999;
constexpr double kManyBytes = 999.4e12;

// Which columns there are, and whether each row has names of its own.
struct Columns {
  bool results, rows, encoded, replays, baseline, varied, copies;
};

std::vector<Columns> all_columns() {
  std::vector<Columns> all;
  for (unsigned bits = 0; bits < 128; ++bits) {
    const auto has = [bits](unsigned bit) { return (bits >> bit & 1U) != 0; };
    all.push_back({has(0), has(1), has(2), has(3), has(4), has(5), has(6)});
  }
  return all;
}

std::string text_of(const Columns& of) {
  return testing::PrintToString(
      std::vector<bool>{of.results, of.rows, of.encoded, of.replays, of.baseline, of.varied, of.copies});
}

BenchCase longest_case(const Columns& columns, BenchOperation operation) {
  BenchCase bench;
  bench.operation = operation;
  bench.model = "mixtral-8x7b";
  bench.shape = {2048, 999'999, 32, 2'147'483'647, 999'936};
  bench.format = bench.results = format_named("fp8_block128_ue8m0");
  bench.names_results = columns.results;
  bench.names_rows = columns.rows;
  bench.rows = RowOrder::by_source;
  bench.chooses = true;
  bench.names_copies = columns.copies;
  bench.encoded = columns.encoded;
  bench.replays = columns.replays;
  return bench;
}

// Two lines of a table, or where names vary four.
std::vector<BenchCase> cases(const Columns& columns, BenchOperation operation = BenchOperation::dispatch) {
  std::vector<BenchCase> cases(2, longest_case(columns, operation));
  if (!columns.varied) return cases;
  BenchCase other = longest_case(columns, is_codec(operation) ? BenchOperation::decode : BenchOperation::pair);
  other.format = format_named("mxfp6_e2m3");
  other.results = format_named("nvfp4");
  other.rows = RowOrder::in_place;
  other.reduction = Reduction::exact;
  other.message_copies = 4;
  other.routing = RoutingKind::zipf;
  cases.push_back(other);
  cases.push_back(other);
  return cases;
}

const BenchSamples& long_samples() {
  static const BenchSamples samples{{kLongSeconds, kLongSeconds}};
  return samples;
}

BenchResult cpu_result(const BenchCase& bench, bool baseline) {
  BenchResult result{bench, {}, {}};
  result.measured.samples = long_samples();
  result.measured.bytes.tokens = kManyBytes;
  result.measured.wire.bytes_per_second = 9999.9e9;
  if (baseline) result.baseline = BaselineMeasurement{long_samples(), "MPI", 2};
  return result;
}

std::string cpu_text(const Columns& columns, BenchOperation operation) {
  std::vector<BenchResult> results;
  for (const BenchCase& bench : cases(columns, operation)) results.push_back(cpu_result(bench, columns.baseline));
  return to_text(results) + footnote_of(results);
}

std::string process_text(const Columns& columns) {
  std::vector<ProcessResult> results;
  for (const BenchCase& bench : cases(columns))
    results.push_back({bench, "shmem", {long_samples(), long_samples(), {kManyBytes, kManyBytes}, 2, 1}, 2048, 2047});
  return to_text(results) + footnote_of(results);
}

class FakeBench final : public GpuBench {
 public:
  FakeBench() {
    speeds_.wire_bytes_per_second = 1e9;
    for (const int in_flight : {1, 4, 16, 64, 128}) speeds_.puts.push_back({in_flight, 999.9e9});
    speeds_.copies = {{"16-byte loads and stores, non-temporal, 4 of each in flight", 1e9}};
    take_fastest_copy(speeds_);
  }
  const GpuSpeeds& speeds() const override { return speeds_; }
  const std::string& hardware() const override { return hardware_; }
  const char* backend() const override { return "nvshmem"; }
  GpuMeasurement measure(const BenchCase&, bool) override { return {}; }

 private:
  GpuSpeeds speeds_;
  std::string hardware_ = "72 x NVIDIA H200 NVL, CUDA driver 13.0, runtime 13.0";
};

std::string gpu_text(const Columns& columns, bool one_node) {
  const FakeBench bench;
  std::vector<GpuResult> results;
  for (const BenchCase& each : cases(columns)) {
    GpuResult& result = results.emplace_back(GpuResult{each, &bench.speeds(), {}, 2048});
    result.measured.dispatch = result.measured.pair = long_samples();
    result.measured.bytes = {{1e10, kManyBytes}, {1e10, kManyBytes}};
    if (columns.baseline && one_node) result.measured.one_node = OneNodeTimes{kLongSeconds, 2 * kLongSeconds};
    if (columns.baseline && !one_node) result.measured.baseline = NcclTimes{"NCCL", kLongSeconds, kLongSeconds, 0};
  }
  return to_text(results, bench) + footnote_of(results);
}

std::string simulated_text(const Columns& columns) {
  std::vector<Simulated> results;
  for (BenchCase bench : cases(columns)) {
    bench.shape = {.ranks = 2048, .experts = 2048, .top_k = 2, .max_tokens = 2, .hidden = 64};
    SimulatedCase of{bench, {}, 32};
    of.cluster.ranks = 2048;
    of.cluster.ranks_per_node = 1;
    of.cluster.speed = {LinkSpeed{1e3, 1, 0}, LinkSpeed{1e3, 1, 10}};
    Simulation simulation(of);
    Simulated& result = results.emplace_back(simulation.result());
    for (WayLoad& load : result.ways)
      for (PhaseLoad* phase : {&load.dispatch, &load.combine}) phase->add(2047, 1024, 99'999'999, 900'000'000);
    result.of.bench.shape.max_tokens = 2'147'483'647;
  }
  return to_text(results);
}

void expect_fits(const std::string& text, const Columns& columns) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kLineWidth) << text_of(columns) << text;
}

TEST(BenchTables, FitALineWithEverySetOfColumns) {
  for (const Columns& columns : all_columns()) {
    expect_fits(cpu_text(columns, BenchOperation::dispatch), columns);
    expect_fits(cpu_text(columns, BenchOperation::encode), columns);
    expect_fits(process_text(columns), columns);
    expect_fits(gpu_text(columns, true), columns);
    expect_fits(gpu_text(columns, false), columns);
  }
}

TEST(BenchTables, OfSimulationsFitALine) {
  for (const bool varied : {false, true}) {
    const Columns columns{false, false, false, false, false, varied, false};
    expect_fits(simulated_text(columns), columns);
  }
}

}  // namespace
}  // namespace ferry::app
