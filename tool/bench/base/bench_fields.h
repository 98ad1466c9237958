// What the tables of `ferry bench` say, column by column: each column's title beside what stands in it.
#pragma once

#include <initializer_list>
#include <string>

#include "tool/bench/base/bench_case.h"
#include "tool/text/table.h"

namespace ferry::app {

// A time of the distribution of samples; its name is its key in records and in tables.
struct Percentile {
  const char* name;
  double fraction;
};
inline constexpr Percentile kMin{"min", 0}, kMedian{"median", 0.5}, kP90{"p90", 0.9}, kP99{"p99", 0.99};

// What was measured.
Fields exchange_fields(const BenchCase& bench);  // operation, format, reduction, routing, tokens
Fields codec_fields(const BenchCase& bench);     // operation, format, hidden, tokens

// `time_is` says what a time of this measurement is: "from the first rank's begin to the last rank's end".
void add_times(Fields& fields, const BenchSamples& samples, std::initializer_list<Percentile> times,
               const std::string& time_is);
Field micros_field(const std::string& key, const std::string& title, double seconds, const std::string& meaning = "");
Field ratio_field(const std::string& key, const std::string& title, double ratio, const std::string& meaning = "");

// The field without a value: "-".
Field without_value(Field field);

}  // namespace ferry::app
