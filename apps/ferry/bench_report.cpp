// Records and tables of benchmark results.
#include "ferry/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <cmath>

#include "ferry/bench_machine.h"
#include "ferry/ferry.h"
#include "ferry/table.h"

namespace ferry::app {
namespace {

constexpr double kMicro = 1e6;

// To `per_unit` steps, so that records stay short.
double rounded(double value, double per_unit) { return std::round(value * per_unit) / per_unit; }
double micros(double seconds) { return rounded(seconds * kMicro, 100); }

Json hardware_json() {
  const Hardware& machine = this_machine();
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"last_level_cache_bytes", machine.last_level_cache},
          {"memory_bytes", machine.memory},
          {"system", machine.system}};
}

Json bytes_json(const BenchCase& bench, const BenchBytes& bytes) {
  const auto whole = [](double value) { return static_cast<std::int64_t>(std::llround(value)); };
  if (is_codec(bench.operation)) return {{"bf16", whole(bytes.tokens)}, {"encoded", whole(bytes.rows)}};
  return {{"tokens", whole(bytes.tokens)},
          {"messages", whole(bytes.messages)},
          {"rows", whole(bytes.rows)},
          {"results", whole(bytes.results)},
          {"partials", whole(bytes.partials)},
          {"output", whole(bytes.output)},
          {"moved", whole(bytes.moved(bench.operation))}};
}

Json shape_json(const BenchCase& bench) {
  Json json = {{"ranks", bench.shape.ranks},
               {"experts", bench.shape.experts},
               {"top_k", bench.shape.top_k},
               {"hidden", bench.shape.hidden},
               {"tokens", bench.shape.max_tokens}};
  if (!bench.model.empty()) json["model"] = bench.model;
  return json;
}

// Bytes of bf16 input (encode) or output (decode) per second.
double codec_speed(const BenchResult& result) { return result.measured.bytes.tokens / result.measured.samples.at(0.5); }

std::vector<Column> columns(bool with_baseline) {
  std::vector<Column> columns = {{"operation", "operation", true},
                                 {"format", "format", true},
                                 {"combine", "combine", true},
                                 {"routing", "routing", true},
                                 {"tokens", "n"},
                                 {"min", "min us"},
                                 {"median", "median us"},
                                 {"p90", "p90 us"},
                                 {"p99", "p99 us"},
                                 {"moved", "moved"},
                                 {"wire", "wire GB/s"},
                                 {"floor", "floor us"},
                                 {"ratio", "x floor"}};
  if (with_baseline) columns.insert(columns.end(), {{"mpi", "MPI us"}, {"mpi_ratio", "x MPI"}});
  return columns;
}

std::vector<Cell> exchange_cells(const BenchResult& result, bool with_baseline) {
  const BenchSamples& samples = result.measured.samples;
  std::vector<Cell> cells = {
      text_cell(to_string(result.bench.operation)),
      text_cell(result.bench.format.name()),
      text_cell(to_string(result.bench.reduction)),
      text_cell(to_string(result.bench.routing)),
      count_cell(result.bench.shape.max_tokens),
      number_cell(samples.at(0) * kMicro, 1),
      number_cell(samples.at(0.5) * kMicro, 1),
      number_cell(samples.at(0.9) * kMicro, 1),
      number_cell(samples.at(0.99) * kMicro, 1),
      bytes_cell(static_cast<std::uint64_t>(result.measured.bytes.moved(result.bench.operation))),
      number_cell(result.measured.wire.bytes_per_second * 1e-9, 1),
      number_cell(result.floor_seconds() * kMicro, 1),
      number_cell(samples.at(0.5) / result.floor_seconds(), 2)};
  if (!with_baseline) return cells;
  if (result.baseline) {
    const double baseline = result.baseline->samples.at(0.5);
    cells.push_back(number_cell(baseline * kMicro, 1));
    cells.push_back(number_cell(samples.at(0.5) / baseline, 2));
  } else {
    cells.insert(cells.end(), {text_cell("-"), text_cell("-")});
  }
  return cells;
}

std::string exchange_text(const std::vector<BenchResult>& results) {
  bool with_baseline = false;
  for (const BenchResult& result : results) with_baseline = with_baseline || result.baseline.has_value();
  Table table(columns(with_baseline));
  for (const BenchResult& result : results) table.add_row(exchange_cells(result, with_baseline));
  const BenchCase& bench = results.front().bench;
  return fmt::format("{}ranks={} workers={} experts={} top_k={} hidden={}, {} cores of {}\n{}",
                     bench.model.empty() ? "" : bench.model + ": ", bench.shape.ranks, bench.workers,
                     bench.shape.experts, bench.shape.top_k, bench.shape.hidden, this_machine().cores,
                     this_machine().cpu, table.text());
}

std::string codec_text(const std::vector<BenchResult>& results) {
  Table table({{"operation", "operation", true},
               {"format", "format", true},
               {"hidden", "hidden"},
               {"tokens", "n"},
               {"min", "min us"},
               {"median", "median us"},
               {"p90", "p90 us"},
               {"p99", "p99 us"},
               {"speed", "GB/s of bf16"}});
  for (const BenchResult& result : results) {
    const BenchSamples& samples = result.measured.samples;
    table.add_row({text_cell(to_string(result.bench.operation)), text_cell(result.bench.format.name()),
                   count_cell(result.bench.shape.hidden), count_cell(result.bench.shape.max_tokens),
                   number_cell(samples.at(0) * kMicro, 1), number_cell(samples.at(0.5) * kMicro, 1),
                   number_cell(samples.at(0.9) * kMicro, 1), number_cell(samples.at(0.99) * kMicro, 1),
                   number_cell(codec_speed(result) * 1e-9, 2)});
  }
  return fmt::format("one core of {}\n{}", this_machine().cpu, table.text());
}

}  // namespace

Json times_json(const BenchSamples& samples) {
  return {{"min", micros(samples.at(0))},
          {"median", micros(samples.at(0.5))},
          {"p90", micros(samples.at(0.9))},
          {"p99", micros(samples.at(0.99))},
          {"iterations", samples.seconds.size()}};
}

Json record_head(const char* backend, const BenchCase& bench, const std::string& command) {
  return {{"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"version", kVersion},
          {"hardware", hardware_json()},
          {"command", command},
          {"backend", backend},
          {"operation", to_string(bench.operation)},
          {"format", bench.format.name()},
          {"shape", shape_json(bench)}};
}

Json to_json(const BenchResult& result, const std::string& command) {
  const BenchCase& bench = result.bench;
  const BenchMeasurement& measured = result.measured;
  Json json = record_head("cpu", bench, command);
  Json policy = {{"input_sets", measured.input_sets}, {"input_set_bytes", std::llround(measured.set_bytes)}};
  if (!is_codec(bench.operation)) {
    policy["combine"] = to_string(bench.reduction);
    policy["routing"] = to_string(bench.routing);
    if (bench.routing == RoutingKind::zipf) policy["zipf_exponent"] = bench.zipf_exponent;
    policy["workers"] = bench.workers;
  }
  json["policy"] = policy;
  json["time_us"] = times_json(measured.samples);
  json["bytes"] = bytes_json(bench, measured.bytes);
  if (is_codec(bench.operation)) {
    json["bf16_gb_per_s"] = rounded(codec_speed(result) * 1e-9, 1000);
    return json;
  }
  json["memory_bytes_per_rank"] = measured.memory_bytes;
  if (bench.operation != BenchOperation::dispatch)
    json["sent"] = {{"counts", "by all ranks to others, in a round"},
                    {"messages", rounded(measured.messages_sent, 10)},
                    {"bytes", rounded(measured.bytes_sent, 10)}};
  json["wire"] = {{"gb_per_s", rounded(measured.wire.bytes_per_second * 1e-9, 100)},
                  {"counts", "bytes read and bytes written"},
                  {"method", measured.wire.method},
                  {"threads", measured.wire.threads},
                  {"repetitions", measured.wire.repetitions}};
  json["floor_us"] = micros(result.floor_seconds());
  json["ratio_to_floor"] = rounded(measured.samples.at(0.5) / result.floor_seconds(), 1000);
  if (!result.baseline) return json;
  json["baseline"] = {{"name", "MPI_Alltoallv, bf16"},
                      {"library", result.baseline->library},
                      {"processes", result.baseline->processes},
                      {"time_us", times_json(result.baseline->samples)}};
  json["ratio_to_baseline"] = rounded(measured.samples.at(0.5) / result.baseline->samples.at(0.5), 1000);
  return json;
}

std::string to_text(const std::vector<BenchResult>& results) {
  if (results.empty()) return {};
  return is_codec(results.front().bench.operation) ? codec_text(results) : exchange_text(results);
}

}  // namespace ferry::app
