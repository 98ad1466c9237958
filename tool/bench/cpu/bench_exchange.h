// Measures an exchange on thread ranks, and the codecs alone.
#pragma once

#include "tool/bench/base/bench_case.h"

namespace ferry::app {

// Ranks start each iteration together and take the input sets in turn. Throws Error(system) where memory does not do.
BenchMeasurement measure_exchange(const BenchCase& bench);

// Encodes or decodes the n tokens of one rank on one core, outside any exchange.
BenchMeasurement measure_codec(const BenchCase& bench);

}  // namespace ferry::app
