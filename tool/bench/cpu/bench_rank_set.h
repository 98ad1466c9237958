// The tensors of one rank of a measured exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/exchange.h"
#include "tool/bench/base/bench_case.h"
#include "tool/bench/base/bench_machine.h"
#include "tool/bench/base/bench_routing.h"

namespace ferry::app {

// What one rank gives to and gets from one iteration.
struct RankSet {
  Routing routing;
  BenchBuffer tokens, encoded, scales, results, output, handle;
  std::vector<BenchBuffer> arrived;  // of each output of a dispatch
  DispatchInput dispatch_in;
  DispatchOutput dispatch_out;
  CombineInput combine_in;
  CombineOutput combine_out;
};

// Set `index` of a rank: the same on every run.
void make_set(RankSet& set, const BenchCase& bench, const RowLayout& layout, int rank, int index);

// The first round of each set: touches its pages and gives the results of its experts something to read. Where the
// line replays, these rounds leave the handles that its rounds are given.
void first_rounds(Exchange& exchange, std::vector<RankSet>& sets, const BenchCase& bench);

// Throws Error(system) where this machine has less than `needed` bytes for the benchmark.
void require_memory(const BenchCase& bench, double needed);

}  // namespace ferry::app
