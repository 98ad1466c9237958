#include "tool/bench/base/bench_fields.h"

#include <fmt/core.h>

namespace ferry::app {
namespace {

constexpr double kMicro = 1e6;

Fields begin_fields(const BenchCase& bench) {
  return {{{"operation", "operation", true}, text_cell(to_string(bench.operation))},
          {{"format", "format", true}, text_cell(bench.format.name())}};
}

Field tokens_field(const BenchCase& bench, const std::string& meaning) {
  return {{"tokens", "n", false, meaning}, count_cell(bench.shape.max_tokens)};
}

}  // namespace

Fields exchange_fields(const BenchCase& bench) {
  Fields fields = begin_fields(bench);
  fields.push_back({{"combine", "combine", true}, text_cell(combine_name(bench))});
  if (bench.names_copies)
    fields.push_back({{"copies", "copies", false, "of the message slots"}, count_cell(bench.message_copies)});
  if (bench.names_results) fields.push_back({{"results", "results", true}, text_cell(bench.results.name())});
  if (bench.names_rows) fields.push_back({{"rows", "rows", true}, text_cell(to_string(bench.rows))});
  if (bench.encoded) fields.push_back({{"given", "given", true, "how tokens come"}, text_cell("encoded")});
  const std::string routing = to_string(bench.routing);
  fields.push_back({{"routing", "routing", true}, text_cell(bench.replays ? routing + ", replayed" : routing)});
  fields.push_back(tokens_field(bench, "tokens of each rank"));
  return fields;
}

Fields codec_fields(const BenchCase& bench) {
  Fields fields = begin_fields(bench);
  fields.push_back({{"hidden", "hidden"}, count_cell(bench.shape.hidden)});
  fields.push_back(tokens_field(bench, "tokens that one core encodes or decodes in an iteration"));
  return fields;
}

void add_times(Fields& fields, const BenchSamples& samples, std::initializer_list<Percentile> times,
               const std::string& time_is) {
  for (const Percentile& time : times) {
    std::string meaning;
    if (time.fraction == kMin.fraction) meaning = fmt::format("the shortest time; a time is {}", time_is);
    if (time.fraction > kMedian.fraction)
      meaning = fmt::format("{:.0f} % of the times are shorter; of fewer than {:.0f} times it is the longest",
                            100 * time.fraction, 1 / (1 - time.fraction));
    fields.push_back(micros_field(time.name, std::string(time.name) + " us", samples.at(time.fraction), meaning));
  }
}

Field micros_field(const std::string& key, const std::string& title, double seconds, const std::string& meaning) {
  return {{key, title, false, meaning}, number_cell(seconds * kMicro, 1)};
}

Field ratio_field(const std::string& key, const std::string& title, double ratio, const std::string& meaning) {
  return {{key, title, false, meaning}, number_cell(ratio, 2)};
}

Field without_value(Field field) {
  field.cell = text_cell("-");
  return field;
}

}  // namespace ferry::app
