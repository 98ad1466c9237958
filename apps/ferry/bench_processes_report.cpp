// Records and tables of measurements on processes.
#include <fmt/core.h>

#include <cmath>

#include "ferry/bench_machine.h"
#include "ferry/bench_processes.h"
#include "ferry/bench_report.h"
#include "ferry/ferry.h"
#include "ferry/table.h"

namespace ferry::app {
namespace {

double ratio_to_put(const ProcessResult& result) {
  return result.measured.samples.at(0.5) / result.measured.plain_put.at(0.5);
}
// Puts between processes of one host may go through its memory: then no interface sees them.
bool is_counted(const ProcessResult& result) {
  const NetworkBytes& network = result.measured.network;
  return network.formula > 0 && network.counted > network.formula / 2;
}
double ratio_of_bytes(const ProcessResult& result) {
  return result.measured.network.counted / result.measured.network.formula;
}

Cell micros_cell(double seconds) { return number_cell(seconds * 1e6, 1); }

}  // namespace

Json to_json(const ProcessResult& result, const std::string& command) {
  const BenchCase& bench = result.bench;
  const ProcessMeasurement& measured = result.measured;
  Json json = record_head("shmem", bench, command);
  json["policy"] = {{"input_sets", measured.input_sets},
                    {"combine", to_string(bench.reduction)},
                    {"routing", to_string(bench.routing)},
                    {"workers", bench.workers},
                    {"nodes", result.nodes},
                    {"direct_peers_of_rank_0", result.direct_peers}};
  if (bench.routing == RoutingKind::zipf) json["policy"]["zipf_exponent"] = bench.zipf_exponent;
  if (const char* transports = std::getenv("UCX_TLS")) json["policy"]["ucx_tls"] = transports;
  json["time_us"] = times_json(measured.samples);
  json["memory_bytes_per_rank"] = measured.memory_bytes;
  json["plain_put"] = {{"of", "the same bytes to the same ranks, each rank's in one piece"},
                       {"time_us", times_json(measured.plain_put)}};
  json["ratio_to_plain_put"] = std::round(ratio_to_put(result) * 1000) / 1000;
  json["network_bytes"] = {{"formula", std::llround(measured.network.formula)}};
  if (!is_counted(result)) return json;
  json["network_bytes"]["left_the_interfaces"] = std::llround(measured.network.counted);
  json["network_bytes"]["ratio"] = std::round(ratio_of_bytes(result) * 1000) / 1000;
  return json;
}

std::string to_text(const std::vector<ProcessResult>& results) {
  if (results.empty()) return {};
  Table table({{"operation", "operation", true},
               {"format", "format", true},
               {"combine", "combine", true},
               {"routing", "routing", true},
               {"tokens", "n"},
               {"min", "min us"},
               {"median", "median us"},
               {"p90", "p90 us"},
               {"p99", "p99 us"},
               {"put", "plain put us"},
               {"ratio", "x put"},
               {"network", "network bytes"},
               {"counted", "left the host"},
               {"share", "x formula"}});
  for (const ProcessResult& result : results) {
    const BenchSamples& samples = result.measured.samples;
    const bool counted = is_counted(result);
    table.add_row({text_cell(to_string(result.bench.operation)), text_cell(result.bench.format.name()),
                   text_cell(to_string(result.bench.reduction)), text_cell(to_string(result.bench.routing)),
                   count_cell(result.bench.shape.max_tokens), micros_cell(samples.at(0)), micros_cell(samples.at(0.5)),
                   micros_cell(samples.at(0.9)), micros_cell(samples.at(0.99)),
                   micros_cell(result.measured.plain_put.at(0.5)), number_cell(ratio_to_put(result), 2),
                   bytes_cell(static_cast<std::uint64_t>(result.measured.network.formula)),
                   counted ? bytes_cell(static_cast<std::uint64_t>(result.measured.network.counted)) : text_cell("-"),
                   counted ? number_cell(ratio_of_bytes(result), 3) : text_cell("-")});
  }
  const ProcessResult& first = results.front();
  const BenchCase& bench = first.bench;
  return fmt::format(
      "{}ranks={} (processes, {} logical nodes, rank 0 stores to {} of the others) workers={} experts={} top_k={} "
      "hidden={}, {} cores of {}\n{}",
      bench.model.empty() ? "" : bench.model + ": ", bench.shape.ranks, first.nodes, first.direct_peers, bench.workers,
      bench.shape.experts, bench.shape.top_k, bench.shape.hidden, this_machine().cores, this_machine().cpu,
      table.text());
}

}  // namespace ferry::app
