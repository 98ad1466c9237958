// Measures an exchange on thread ranks, and the codecs alone.
#pragma once

#include <optional>
#include <vector>

#include "tool/bench/base/bench_case.h"
#include "tool/bench/base/bench_machine.h"
#include "tool/bench/base/bench_wire.h"

namespace ferry::app {

// Ranks start each iteration together and take the input sets in turn. Makes `wire` where it is not that of as many
// ranks and workers: trying its ways takes seconds. Throws Error(system) where memory does not do.
BenchMeasurement measure_exchange(const BenchCase& bench, std::optional<Wire>& wire);

// Of `meetings` [rank][meeting], each from the first rank's begin to the last one's end. A rank that is not running
// prolongs that of all.
double shortest_meeting(const std::vector<std::vector<Span>>& meetings);

// Encodes or decodes the n tokens of one rank on one core, outside any exchange.
BenchMeasurement measure_codec(const BenchCase& bench);

}  // namespace ferry::app
