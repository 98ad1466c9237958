// Measures an exchange whose ranks are processes, beside a plain put of the same bytes in the same run, and counts what
// the network really carried.
#pragma once

#include <string>
#include <vector>

#include "tool/bench/base/bench_case.h"
#include "tool/ranks/ranks.h"
#include "tool/text/json.h"

namespace ferry::app {

// Bytes of one iteration, from all ranks to ranks that they reach through the network.
struct NetworkBytes {
  double formula = 0;   // messages, routing, results and signals
  double counted = -1;  // that left this host's interfaces, headers included; -1: it cannot be counted
};

struct ProcessMeasurement {
  BenchSamples samples;
  BenchSamples plain_put;  // of the same bytes to the same ranks (put_link.h)
  NetworkBytes network;
  int input_sets = 0;
  std::size_t memory_bytes = 0;
};

struct ProcessResult {
  BenchCase bench;
  const char* backend = "shmem";
  ProcessMeasurement measured;
  int nodes = 1;
  int direct_peers = 0;  // ranks that rank 0 stores to itself, without rank 0
};

// Collective over the ranks: every process calls it with the same case and gets the same result.
ProcessResult measure_processes(const Ranks& ranks, const BenchCase& bench, int nodes);

Json to_json(const ProcessResult& result, const std::string& command);
std::string to_text(const std::vector<ProcessResult>& results);
// What the columns of that table mean.
std::string footnote_of(const std::vector<ProcessResult>& results);

}  // namespace ferry::app
