// Records and tables of GPU measurements.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <cmath>

#include "ferry/ferry.h"
#include "tool/bench/base/bench_fields.h"
#include "tool/bench/cpu/bench_report.h"
#include "tool/bench/gpu/bench_gpu.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr double kMicro = 1e6;

Json bytes_json(const GpuResult& result) {
  const auto phase = [](const PhaseBytes& bytes) {
    return Json{{"wire", std::llround(bytes.wire)}, {"device", std::llround(bytes.device)}};
  };
  Json json = {{"of", "the busiest rank"}};
  if (result.bench.operation != BenchOperation::combine) json["dispatch"] = phase(result.measured.bytes.dispatch);
  if (result.bench.operation != BenchOperation::dispatch) json["combine"] = phase(result.measured.bytes.combine);
  return json;
}

// Those of a combine are those of a pair: its share of them has no time of its own.
Json kernels_json(const GpuResult& result) {
  const GpuMeasurement& m = result.measured;
  Json kernels = Json::array();
  for (const GpuKernel& kernel :
       result.bench.operation == BenchOperation::dispatch ? m.dispatch_kernels : m.pair_kernels)
    kernels.push_back({{"blocks", kernel.blocks}, {"share", rounded(kernel.share, 1000)}});
  return {{"of", result.bench.operation == BenchOperation::dispatch ? "dispatch" : "pair"}, {"in_order", kernels}};
}

Json policy_json(const GpuResult& result) {
  const BenchCase& bench = result.bench;
  Json policy = {{"input_sets", result.measured.input_sets},
                 {"input_set_bytes", std::llround(result.measured.set_bytes)}};
  add_exchange(policy, bench);
  policy["max_blocks"] = bench.max_blocks;
  if (bench.wait_blocks >= 0) policy["wait_blocks"] = bench.wait_blocks;
  policy["rounds_in_graph"] =
      bench.operation == BenchOperation::dispatch ? result.measured.dispatch_chain : result.measured.pair_chain;
  if (bench.operation == BenchOperation::combine) policy["taken_as"] = "pair less median dispatch";
  return policy;
}

Json wire_json(const GpuSpeeds& speeds) {
  Json points = Json::array();
  for (const GpuSpeeds::Point& point : speeds.wire)
    points.push_back({{"bytes", std::llround(point.bytes)},
                      {"us", micros(point.seconds)},
                      {"gb_per_s", rounded(point.bytes / point.seconds * 1e-9, 10)},
                      {"blocks", point.blocks}});
  Json puts = Json::array();
  for (const PutRate& rate : speeds.puts)
    puts.push_back({{"in_flight", rate.in_flight}, {"gb_per_s", rounded(rate.bytes_per_second * 1e-9, 10)}});
  Json copies = Json::array();
  for (const GpuSpeeds::Copy& copy : speeds.copies)
    copies.push_back({{"method", copy.method}, {"gb_per_s", rounded(copy.bytes_per_second * 1e-9, 10)}});
  return {{"gb_per_s", rounded(speeds.wire_bytes_per_second * 1e-9, 10)},
          {"latency_us", micros(speeds.wire_latency)},
          {"counts", "bytes out of a rank, all ranks to all others at once"},
          {"method", speeds.method},
          {"points", points},
          {"puts_in_flight", puts},
          {"copy_gb_per_s", rounded(speeds.copy_bytes_per_second * 1e-9, 10)},
          {"copy_method", speeds.copy_method},
          {"copies", copies}};
}

// What of NCCL stands beside the operation.
double baseline_seconds(const GpuResult& result) {
  const NcclTimes& nccl = *result.measured.baseline;
  if (result.bench.operation == BenchOperation::dispatch) return nccl.all_gather;
  if (result.bench.operation == BenchOperation::combine) return nccl.reduce_scatter;
  return nccl.all_gather + nccl.reduce_scatter;
}

double one_node_seconds(const GpuResult& result) {
  const OneNodeTimes& node = *result.measured.one_node;
  if (result.bench.operation == BenchOperation::dispatch) return node.dispatch;
  if (result.bench.operation == BenchOperation::combine) return node.pair - node.dispatch;
  return node.pair;
}

// The baseline's name in the table, empty where there is none, and its time.
std::string baseline_name(const GpuResult& result) {
  return result.measured.one_node ? "1 node" : result.measured.baseline ? "NCCL" : "";
}
double any_baseline_seconds(const GpuResult& result) {
  return result.measured.one_node ? one_node_seconds(result) : baseline_seconds(result);
}

Fields fields_of(const GpuResult& result) {
  const BenchSamples samples = result.measured.samples(result.bench.operation);
  const double median = samples.at(0.5);
  const GpuBytes& bytes = result.measured.bytes;
  double wire = 0;
  if (result.bench.operation != BenchOperation::combine) wire += bytes.dispatch.wire;
  if (result.bench.operation != BenchOperation::dispatch) wire += bytes.combine.wire;
  Fields fields = exchange_fields(result.bench);
  add_times(fields, samples, {kMin, kMedian, kP99},
            "a round's share of a CUDA graph of rounds between two events, on the slowest rank; that of combine is a "
            "pair's less the median dispatch");
  fields.push_back({{"wire", "wire bytes", false, "what the busiest rank sends or what it gets, whichever is more"},
                    bytes_cell(static_cast<std::uint64_t>(wire))});
  fields.push_back(micros_field("floor", "floor us", result.floor_seconds(),
                                "for each phase the wire's latency, and the bytes at the speed of the wire or of "
                                "copies, whichever takes longer; the speeds stand above the table"));
  fields.push_back(
      ratio_field("ratio", "x floor", median / result.floor_seconds(), "median us over floor us; 1 is best"));
  fields.push_back(micros_field("bound", "bound us", result.bound_seconds(),
                                fmt::format("for each phase {:g} us, and {:g} times what the bytes take in the floor",
                                            kPhaseLatency * kMicro, kPhaseFactor)));
  fields.push_back(ratio_field("bound_ratio", "x bound", median / result.bound_seconds(), "median us over bound us"));
  const std::optional<double> held = result.measured.sm_seconds(result.bench.operation);
  const Field sm = micros_field("sm", "SM us", held.value_or(0),
                                "multiprocessors that the kernels hold, times the microseconds that they do: what a "
                                "kernel beside them does not get");
  fields.push_back(held ? sm : without_value(sm));
  const std::string baseline = baseline_name(result);
  if (baseline.empty()) return fields;
  fields.push_back(micros_field("baseline", baseline + " us", any_baseline_seconds(result),
                                result.measured.one_node
                                    ? "the same ranks as one node"
                                    : "all-gather and reduce-scatter of the same tokens, in bf16"));
  fields.push_back(ratio_field("baseline_ratio", "x " + baseline, median / any_baseline_seconds(result),
                               fmt::format("median us over {} us; less is better", baseline)));
  return fields;
}

// NVSHMEM: what a number of puts in flight carries.
std::string puts_text(const GpuSpeeds& speeds) {
  std::string text;
  for (const PutRate& rate : speeds.puts)
    text += fmt::format("{}{} in flight {:.1f}", text.empty() ? "puts, GB/s: " : ", ", rate.in_flight,
                        rate.bytes_per_second * 1e-9);
  return text.empty() ? text : wrapped(text);
}

Table table_of(const std::vector<GpuResult>& results) {
  std::vector<Fields> rows;
  for (const GpuResult& result : results) rows.push_back(fields_of(result));
  return Table(rows);
}

}  // namespace

std::string footnote_of(const std::vector<GpuResult>& results) {
  return results.empty() ? "" : table_of(results).footnote();
}

Json to_json(const GpuResult& result, const GpuBench& measurer, const std::string& command) {
  const BenchCase& bench = result.bench;
  const BenchSamples samples = result.measured.samples(bench.operation);
  Json json = {{"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
               {"version", kVersion},
               {"hardware", {{"gpus", measurer.hardware()}}},
               {"command", command},
               {"backend", measurer.backend()},
               {"nodes", result.nodes},
               {"operation", to_string(bench.operation)},
               {"format", bench.format.name()},
               {"shape", shape_json(bench)},
               {"policy", policy_json(result)},
               {"time_us", times_json(samples)},
               {"bytes", bytes_json(result)},
               {"memory_bytes_per_rank", result.measured.memory_bytes},
               {"wire", wire_json(*result.speeds)},
               {"floor_us", micros(result.floor_seconds())},
               {"ratio_to_floor", rounded(samples.at(0.5) / result.floor_seconds(), 1000)},
               {"bound_us", micros(result.bound_seconds())},
               {"ratio_to_bound", rounded(samples.at(0.5) / result.bound_seconds(), 1000)}};
  if (const std::optional<double> held = result.measured.sm_seconds(bench.operation)) {
    json["sm_us"] = micros(*held);
    json["kernels"] = kernels_json(result);
  }
  if (result.measured.one_node) {
    json["baseline"] = {{"name", "the same ranks as one node"},
                        {"time_us", {{"median", micros(one_node_seconds(result))}}}};
    json["ratio_to_baseline"] = rounded(samples.at(0.5) / one_node_seconds(result), 1000);
  }
  if (!result.measured.baseline) return json;
  const NcclTimes& nccl = *result.measured.baseline;
  json["baseline"] = {{"name", "NCCL, bf16"},
                      {"library", nccl.library},
                      {"all_gather_us", micros(nccl.all_gather)},
                      {"reduce_scatter_us", micros(nccl.reduce_scatter)},
                      {"all_to_all_us", micros(nccl.all_to_all)},
                      {"time_us", {{"median", micros(baseline_seconds(result))}}}};
  json["ratio_to_baseline"] = rounded(samples.at(0.5) / baseline_seconds(result), 1000);
  return json;
}

std::string to_text(const std::vector<GpuResult>& results, const GpuBench& measurer) {
  if (results.empty()) return {};
  const BenchCase& bench = results.front().bench;
  const GpuSpeeds& speeds = *results.front().speeds;
  return wrapped(fmt::format(
             "{}ranks={} experts={} top_k={} hidden={}{}{}{}, {}", bench.model.empty() ? "" : bench.model + ": ",
             bench.shape.ranks, bench.shape.experts, bench.shape.top_k, bench.shape.hidden,
             bench.max_blocks == 0 ? "" : fmt::format(" max_blocks={}", bench.max_blocks),
             bench.wait_blocks < 0 ? "" : fmt::format(" wait_blocks={}", bench.wait_blocks),
             results.front().nodes == 1 ? "" : fmt::format(" nodes={}", results.front().nodes), measurer.hardware())) +
         wrapped(fmt::format("wire {:.1f} GB/s + {:.1f} us ({}), copies in device memory {:.0f} GB/s ({})",
                             speeds.wire_bytes_per_second * 1e-9, speeds.wire_latency * kMicro, speeds.method,
                             speeds.copy_bytes_per_second * 1e-9, speeds.copy_method)) +
         puts_text(speeds) + table_of(results).text();
}

}  // namespace ferry::app
