// `ferry bench`: measures the exchange, the wire under it and, with --baseline, the same exchange written
// with MPI; or simulates many ranks. It never checks results; the tests do that.
#pragma once

#include <string>
#include <vector>

#include "tool/bench/base/bench_case.h"

namespace ferry::app {

// What --operation and --routing may be.
std::vector<std::string> operation_names();
std::vector<std::string> routing_names();

// Speeds as the options give them: GB/s and us.
struct SimulateOptions {
  bool simulate = false;
  int ranks_per_node = 8;
  int node_limit = 0;
  double nvlink_gb = 350;
  double nvlink_us = 3.5;
  double nic_gb = 50;
  double nic_us = 5;
  double nic_operations = 0;
};

struct BenchOptions {
  std::vector<std::string> operations = {"pair"};
  std::vector<std::string> formats = {"bf16"};
  std::vector<std::string> combines, reductions;  // empty: not given
  std::vector<int> message_copies = {2};
  std::vector<std::string> rows = {"by_expert"};
  std::vector<std::string> results = {"bf16"};
  std::vector<std::string> routings = {"uniform"};
  std::vector<std::string> models;
  std::vector<int> tokens = {1, 32, 128, 512};
  std::vector<int> ranks = {2};
  // Ranks and tokens are swept.
  Shape shape{.ranks = 0, .experts = 64, .top_k = 8, .max_tokens = 1, .hidden = 7168};
  double zipf_exponent = 1.0;
  int workers = 1;
  int nodes = 1;
  int max_blocks = 0;
  int wait_blocks = -1;  // -1: whole calls
  int cache_mib = 0;     // 0: as the system says
  BenchEffort effort;
  bool names_seconds = false;  // --seconds was given, be it with its default
  std::string backend = "auto";
  std::string output;
  std::string trace;
  bool json = false;
  bool baseline = false;
  bool encoded = false;
  bool replays = false;
  SimulateOptions simulation;
};

// Both throw ferry::Error, as the other commands do.
void run_bench_command(const BenchOptions& options);
// The hidden command that `bench --baseline` starts under mpirun: one process of the baseline, for the first value of
// each option.
void run_bench_worker_command(const BenchOptions& options);

}  // namespace ferry::app
