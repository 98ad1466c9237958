// Keys of the records of commit 14cf5a1 that need GPUs, processes under oshrun or MPI: all are still there, as scripts
// of users rely on them. The others: test_frozen.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tool/bench/cpu/bench_report.h"
#include "tool/bench/gpu/bench_gpu.h"
#include "tool/bench/processes/bench_processes.h"

namespace ferry::app {
namespace {

using Paths = std::vector<std::string>;

bool has(const Json& record, const std::string& path) try {
  const Json* at = &record;
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '/');) at = part == "0" ? &(*at)[0] : &std::as_const(*at)[part];
  return true;
} catch (const std::out_of_range&) {
  return false;
}

// The paths that the record lacks. "a/b" is a key inside another, "a/0" the first element of an array.
Paths missing(const Json& record, const Paths& wanted) {
  Paths lacks;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(lacks),
               [&](const std::string& path) { return !has(record, path); });
  return lacks;
}

const Paths kHead = {"date",           "version",
                     "command",        "backend",
                     "operation",      "format",
                     "shape/ranks",    "shape/experts",
                     "shape/top_k",    "shape/hidden",
                     "shape/tokens",   "policy/combine",
                     "policy/routing", "policy/zipf_exponent"};
const Paths kTimes = {"time_us/min", "time_us/median", "time_us/p90", "time_us/p99", "time_us/iterations"};

BenchCase skewed(BenchOperation operation = BenchOperation::pair) {
  BenchCase bench;
  bench.operation = operation;
  bench.shape = {.ranks = 2, .experts = 8, .top_k = 2, .max_tokens = 10, .hidden = 256};
  bench.routing = RoutingKind::zipf;
  return bench;
}

BenchSamples some_times() { return {{10e-6, 20e-6}}; }

class FakeBench final : public GpuBench {
 public:
  FakeBench() {
    speeds_.wire = {{1e6, 1e-5, 32}};
    speeds_.puts = {{4, 1e9}};
    speeds_.copies = {{"copy", 1e12}};
    speeds_.wire_bytes_per_second = 1e11;
    take_fastest_copy(speeds_);
  }
  const GpuSpeeds& speeds() const override { return speeds_; }
  const std::string& hardware() const override { return hardware_; }
  const char* backend() const override { return "cuda"; }
  GpuMeasurement measure(const BenchCase&, bool) override { return {}; }

 private:
  GpuSpeeds speeds_;
  std::string hardware_ = "2 x GPU";
};

Json gpu_record(BenchOperation operation) {
  const FakeBench bench;
  GpuResult result{skewed(operation), &bench.speeds(), {}};
  result.measured.dispatch = result.measured.pair = some_times();
  result.measured.baseline = NcclTimes{"NCCL", 1e-5, 1e-5, 1e-5};
  return to_json(result, bench, "ferry bench");
}

TEST(FrozenKeys, OfGpus) {
  const Json pair = gpu_record(BenchOperation::pair);
  EXPECT_THAT(missing(pair, kHead), testing::IsEmpty());
  EXPECT_THAT(missing(pair, kTimes), testing::IsEmpty());
  EXPECT_THAT(missing(pair, {"hardware/gpus",
                             "nodes",
                             "policy/input_sets",
                             "policy/input_set_bytes",
                             "policy/max_blocks",
                             "policy/rounds_in_graph",
                             "bytes/of",
                             "bytes/dispatch/wire",
                             "bytes/dispatch/device",
                             "bytes/combine/wire",
                             "bytes/combine/device",
                             "memory_bytes_per_rank",
                             "wire/gb_per_s",
                             "wire/latency_us",
                             "wire/counts",
                             "wire/method",
                             "wire/points/0/bytes",
                             "wire/points/0/us",
                             "wire/points/0/gb_per_s",
                             "wire/points/0/blocks",
                             "wire/puts_in_flight/0/in_flight",
                             "wire/puts_in_flight/0/gb_per_s",
                             "wire/copy_gb_per_s",
                             "wire/copy_method",
                             "wire/copies/0/method",
                             "wire/copies/0/gb_per_s",
                             "floor_us",
                             "ratio_to_floor",
                             "bound_us",
                             "ratio_to_bound",
                             "baseline/name",
                             "baseline/library",
                             "baseline/all_gather_us",
                             "baseline/reduce_scatter_us",
                             "baseline/all_to_all_us",
                             "baseline/time_us/median",
                             "ratio_to_baseline"}),
              testing::IsEmpty());
  EXPECT_THAT(missing(pair, {"floor", "wire/copies/0/speed"}), testing::SizeIs(2));
  EXPECT_THAT(missing(gpu_record(BenchOperation::combine), {"policy/taken_as"}), testing::IsEmpty());
}

TEST(FrozenKeys, OfProcesses) {
  ProcessResult result;
  result.bench = skewed();
  result.measured.samples = result.measured.plain_put = some_times();
  result.measured.network = {1000, 1100};
  result.nodes = 2;
  setenv("UCX_TLS", "tcp", 1);
  const Json record = to_json(result, "ferry bench");
  unsetenv("UCX_TLS");
  EXPECT_THAT(missing(record, kHead), testing::IsEmpty());
  EXPECT_THAT(missing(record, kTimes), testing::IsEmpty());
  EXPECT_THAT(missing(record, {"hardware/cpu", "hardware/cores", "policy/input_sets", "policy/workers", "policy/nodes",
                               "policy/direct_peers_of_rank_0", "policy/ucx_tls", "memory_bytes_per_rank",
                               "plain_put/of", "plain_put/time_us/median", "ratio_to_plain_put",
                               "network_bytes/formula", "network_bytes/left_the_interfaces", "network_bytes/ratio"}),
              testing::IsEmpty());
}

TEST(FrozenKeys, OfTheBaselineOfMpi) {
  BenchResult result;
  result.bench = skewed();
  result.measured.samples = some_times();
  result.measured.wire.bytes_per_second = 1e11;
  result.baseline = BaselineMeasurement{{{60e-6}}, "MPI", 2};
  EXPECT_THAT(missing(to_json(result, "ferry bench"), {"baseline/name", "baseline/library", "baseline/processes",
                                                       "baseline/time_us/median", "ratio_to_baseline"}),
              testing::IsEmpty());
}

}  // namespace
}  // namespace ferry::app
