// Records and tables of benchmark results.
#include "tool/bench/cpu/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ferry/ferry.h"
#include "tool/bench/base/bench_fields.h"
#include "tool/bench/base/bench_machine.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

Json hardware_json() {
  const Hardware& machine = this_machine();
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"last_level_cache_bytes", machine.last_level_cache},
          {"memory_bytes", machine.memory},
          {"system", machine.system}};
}

// Messages and partials are written at one rank and read at another, so they count twice.
const char* moved_is(BenchOperation operation) {
  if (operation == BenchOperation::dispatch) return "tokens + 2 messages + rows";
  if (operation == BenchOperation::combine) return "results + 2 partials + output";
  return "tokens + 2 messages + rows + results + 2 partials + output";
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

// Bytes of bf16 input (encode) or output (decode) per second.
double codec_speed(const BenchResult& result) { return result.measured.bytes.tokens / result.measured.samples.at(0.5); }

Fields fields_of(const BenchResult& result, bool with_baseline) {
  const BenchSamples& samples = result.measured.samples;
  const double median = samples.at(0.5);
  Fields fields = exchange_fields(result.bench);
  add_times(fields, samples, {kMin, kMedian, kP90, kP99}, "from the first rank's begin to the last rank's end");
  const auto moved = static_cast<std::uint64_t>(result.measured.bytes.moved(result.bench.operation));
  fields.push_back({{"moved", "moved", false, "bytes that all ranks together read and write"}, bytes_cell(moved)});
  fields.push_back({{"wire", "wire GB/s", false,
                     "how fast all ranks copy to each other, from memory to memory, reads and writes counted; measured "
                     "anew for each "
                     "line, between its rounds"},
                    number_cell(result.measured.wire.bytes_per_second * 1e-9, 1)});
  fields.push_back(micros_field("floor", "floor us", result.floor_seconds(),
                                "the time that the moved bytes need at the speed of the wire"));
  fields.push_back(ratio_field(
      "ratio", "x floor", median / result.floor_seconds(),
      "median us over floor us; 1 is as fast as the wire, and less is where bytes that move stay in a cache, "
      "or where something else slowed the wire down"));
  fields.push_back(
      micros_field("bound", "bound us", result.bound_seconds(),
                   fmt::format("for each phase the least time in which all ranks told each other that they were "
                               "there, and {:g} times the floor",
                               kBoundFactor)));
  fields.push_back(ratio_field("bound_ratio", "x bound", median / result.bound_seconds(), "median us over bound us"));
  if (!with_baseline) return fields;
  const double baseline = result.baseline ? result.baseline->samples.at(0.5) : 1;
  for (const Field& field :
       {micros_field("mpi", "MPI us", baseline, "the same exchange by MPI_Alltoallv, in bf16"),
        ratio_field("mpi_ratio", "x MPI", median / baseline, "median us over MPI us; less is better")})
    fields.push_back(result.baseline ? field : without_value(field));
  return fields;
}

Table exchange_table(const std::vector<BenchResult>& results) {
  bool with_baseline = false;
  for (const BenchResult& result : results) with_baseline = with_baseline || result.baseline.has_value();
  std::vector<Fields> rows;
  for (const BenchResult& result : results) rows.push_back(fields_of(result, with_baseline));
  return Table(rows);
}

std::string exchange_title(const BenchCase& bench) {
  return wrapped(fmt::format("{}ranks={} workers={} experts={} top_k={} hidden={}, {} cores of {}",
                             bench.model.empty() ? "" : bench.model + ": ", bench.shape.ranks, bench.workers,
                             bench.shape.experts, bench.shape.top_k, bench.shape.hidden, this_machine().cores,
                             this_machine().cpu));
}

Table codec_table(const std::vector<BenchResult>& results) {
  std::vector<Fields> rows;
  for (const BenchResult& result : results) {
    Fields& fields = rows.emplace_back(codec_fields(result.bench));
    add_times(fields, result.measured.samples, {kMin, kMedian, kP90, kP99}, "that of all n tokens on one core");
    fields.push_back({{"speed", "GB/s of bf16", false, "bytes of the tokens as bf16, over median us"},
                      number_cell(codec_speed(result) * 1e-9, 2)});
  }
  return Table(rows);
}

Table table_of(const std::vector<BenchResult>& results) {
  return is_codec(results.front().bench.operation) ? codec_table(results) : exchange_table(results);
}

// Where other work on the machine slowed some copies down, a floor by their median is none. Codecs have no wire.
std::string disturbance_of(const std::vector<BenchResult>& results) {
  constexpr double kSteady = 1.5;
  double widest = 1;
  for (const BenchResult& result : results) widest = std::max(widest, result.measured.wire.spread);
  if (widest <= kSteady) return {};
  return wrapped(
      fmt::format("The wire was disturbed: its slow copies (p90) took up to {:.1f} times as long as its fast "
                  "ones (p10). So floor us and x floor say little here; measure again on an idle machine.",
                  widest));
}

// A bound of such meetings is above the time of a round.
std::string disturbed_meetings_of(const std::vector<BenchResult>& results) {
  double longest = 0;
  for (const BenchResult& result : results)
    if (result.meetings_were_disturbed()) longest = std::max(longest, result.measured.meeting_seconds);
  if (longest == 0) return {};
  return wrapped(
      fmt::format("Other work disturbed the meetings of ranks: even the shortest took up to {:.1f} us, longer than a "
                  "round. So bound us and x bound say nothing there; measure again on an idle machine.",
                  longest * 1e6));
}

}  // namespace

double rounded(double value, double per_unit) { return std::round(value * per_unit) / per_unit; }
double micros(double seconds) { return rounded(seconds * 1e6, 100); }

Json shape_json(const BenchCase& bench) {
  Json json = {{"ranks", bench.shape.ranks},
               {"experts", bench.shape.experts},
               {"top_k", bench.shape.top_k},
               {"hidden", bench.shape.hidden},
               {"tokens", bench.shape.max_tokens}};
  if (!bench.model.empty()) json["model"] = bench.model;
  return json;
}

void add_exchange(Json& policy, const BenchCase& bench) {
  policy["combine"] = to_string(bench.reduction);
  if (bench.names_reduction) policy["reduction"] = to_string(exchange_options(bench).reduction);
  if (bench.names_copies) policy["message_copies"] = bench.message_copies;
  policy["rows"] = to_string(bench.rows);
  policy["results"] = bench.results.name();
  policy["given"] = bench.encoded ? "encoded" : "bf16";
  policy["dispatch"] = bench.replays ? "replay" : "fresh";
  policy["routing"] = to_string(bench.routing);
  if (bench.routing == RoutingKind::zipf) policy["zipf_exponent"] = bench.zipf_exponent;
}

Json times_json(const BenchSamples& samples) {
  Json json;
  for (const Percentile& time : {kMin, kMedian, kP90, kP99}) json[time.name] = micros(samples.at(time.fraction));
  json["iterations"] = samples.seconds.size();
  return json;
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
    add_exchange(policy, bench);
    policy["workers"] = bench.workers;
  }
  json["policy"] = std::move(policy);
  json["time_us"] = times_json(measured.samples);
  json["bytes"] = bytes_json(bench, measured.bytes);
  if (is_codec(bench.operation)) {
    json["bf16_gb_per_s"] = rounded(codec_speed(result) * 1e-9, 1000);
    return json;
  }
  json["moved_is"] = moved_is(bench.operation);
  json["memory_bytes_per_rank"] = measured.memory_bytes;
  if (bench.operation != BenchOperation::dispatch)
    json["sent"] = {{"counts", "by all ranks to others, in a round"},
                    {"messages", rounded(measured.messages_sent, 10)},
                    {"bytes", rounded(measured.bytes_sent, 10)}};
  json["wire"] = {{"gb_per_s", rounded(measured.wire.bytes_per_second * 1e-9, 100)},
                  {"counts", "bytes read and bytes written"},
                  {"method", measured.wire.method},
                  {"threads", measured.wire.threads},
                  {"repetitions", measured.wire.repetitions},
                  {"spread", rounded(measured.wire.spread, 100)}};
  json["floor_us"] = micros(result.floor_seconds());
  json["ratio_to_floor"] = rounded(measured.samples.at(0.5) / result.floor_seconds(), 1000);
  json["meeting_us"] = micros(measured.meeting_seconds);
  json["bound_us"] = micros(result.bound_seconds());
  json["ratio_to_bound"] = rounded(measured.samples.at(0.5) / result.bound_seconds(), 1000);
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
  const BenchCase& bench = results.front().bench;
  const std::string title =
      is_codec(bench.operation) ? wrapped("one core of " + this_machine().cpu) : exchange_title(bench);
  return title + table_of(results).text();
}

std::string footnote_of(const std::vector<BenchResult>& results) {
  return results.empty() ? "" : table_of(results).footnote() + disturbance_of(results) + disturbed_meetings_of(results);
}

}  // namespace ferry::app
