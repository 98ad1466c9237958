// Records and tables of measurements on processes.
#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "ferry/ferry.h"
#include "tool/bench/base/bench_fields.h"
#include "tool/bench/base/bench_machine.h"
#include "tool/bench/cpu/bench_report.h"
#include "tool/bench/processes/bench_processes.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

double ratio_to_put(const ProcessResult& result) {
  return result.measured.samples.at(0.5) / result.measured.plain_put.at(0.5);
}
// The put has the latency of its phases, and all bytes (docs/lab/cpu-tables.md).
double bound_seconds(const ProcessResult& result) { return kBoundFactor * result.measured.plain_put.at(0.5); }
double ratio_to_bound(const ProcessResult& result) { return result.measured.samples.at(0.5) / bound_seconds(result); }
// Puts between processes of one host may go through its memory: then no interface sees them.
bool is_counted(const ProcessResult& result) {
  const NetworkBytes& network = result.measured.network;
  return network.formula > 0 && network.counted > network.formula / 2;
}
double ratio_of_bytes(const ProcessResult& result) {
  return result.measured.network.counted / result.measured.network.formula;
}

Fields fields_of(const ProcessResult& result) {
  const ProcessMeasurement& measured = result.measured;
  Fields fields = exchange_fields(result.bench);
  add_times(fields, measured.samples, {kMin, kMedian, kP90, kP99},
            "from the first rank's begin to the last rank's end where all ranks share a host, else that of the slowest "
            "rank");
  fields.push_back(micros_field("put", "plain put us", measured.plain_put.at(0.5),
                                "the same bytes to the same ranks, each rank's in one piece"));
  fields.push_back(ratio_field("ratio", "x put", ratio_to_put(result), "median us over plain put us; 1 is best"));
  fields.push_back(
      micros_field("bound", "bound us", bound_seconds(result), fmt::format("{:g} times plain put us", kBoundFactor)));
  fields.push_back(ratio_field("bound_ratio", "x bound", ratio_to_bound(result), "median us over bound us"));
  fields.push_back(
      {{"network", "network bytes", false,
        "what all ranks send to ranks that they reach through the network, by the formula of docs/protocol.md"},
       bytes_cell(static_cast<std::uint64_t>(measured.network.formula))});
  const bool counted = is_counted(result);
  const auto left = static_cast<std::uint64_t>(counted ? measured.network.counted : 0);
  for (const Field& field :
       {Field{{"counted", "left the host", false, "bytes that the network interfaces of this host counted"},
              bytes_cell(left)},
        Field{{"share", "x formula", false, "left the host over network bytes"},
              number_cell(ratio_of_bytes(result), 3)}})
    fields.push_back(counted ? field : without_value(field));
  return fields;
}

Table table_of(const std::vector<ProcessResult>& results) {
  std::vector<Fields> rows;
  for (const ProcessResult& result : results) rows.push_back(fields_of(result));
  return Table(rows);
}

}  // namespace

std::string footnote_of(const std::vector<ProcessResult>& results) {
  return results.empty() ? "" : table_of(results).footnote();
}

Json to_json(const ProcessResult& result, const std::string& command) {
  const BenchCase& bench = result.bench;
  const ProcessMeasurement& measured = result.measured;
  Json json = record_head(result.backend, bench, command);
  json["policy"] = {{"input_sets", measured.input_sets},
                    {"workers", bench.workers},
                    {"nodes", result.nodes},
                    {"direct_peers_of_rank_0", result.direct_peers}};
  add_exchange(json["policy"], bench);
  const char* transports = std::getenv("UCX_TLS");
  if (transports != nullptr && result.backend == std::string_view("shmem")) json["policy"]["ucx_tls"] = transports;
  json["time_us"] = times_json(measured.samples);
  json["memory_bytes_per_rank"] = measured.memory_bytes;
  json["plain_put"] = {{"of", "the same bytes to the same ranks, each rank's in one piece"},
                       {"time_us", times_json(measured.plain_put)}};
  json["ratio_to_plain_put"] = rounded(ratio_to_put(result), 1000);
  json["bound_us"] = micros(bound_seconds(result));
  json["ratio_to_bound"] = rounded(ratio_to_bound(result), 1000);
  json["network_bytes"] = {{"formula", std::llround(measured.network.formula)}};
  if (!is_counted(result)) return json;
  json["network_bytes"]["left_the_interfaces"] = std::llround(measured.network.counted);
  json["network_bytes"]["ratio"] = rounded(ratio_of_bytes(result), 1000);
  return json;
}

std::string to_text(const std::vector<ProcessResult>& results) {
  if (results.empty()) return {};
  const ProcessResult& first = results.front();
  const BenchCase& bench = first.bench;
  return wrapped(fmt::format("{}ranks={} (processes; as {} node{}, where rank 0 stores to the memory of {} others) "
                             "workers={} experts={} "
                             "top_k={} hidden={}, {} cores of {}",
                             bench.model.empty() ? "" : bench.model + ": ", bench.shape.ranks, first.nodes,
                             first.nodes == 1 ? "" : "s", first.direct_peers, bench.workers, bench.shape.experts,
                             bench.shape.top_k, bench.shape.hidden, this_machine().cores, this_machine().cpu)) +
         table_of(results).text();
}

}  // namespace ferry::app
