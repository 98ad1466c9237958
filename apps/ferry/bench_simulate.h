// The options of `ferry bench --simulate`, and its sweep.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "ferry/simulate.h"
#include "ferry/table.h"

namespace ferry::app {

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

// Adds --simulate and what goes with it.
void add_simulate_options(CLI::App& command, SimulateOptions& options);

SimulatedCase simulated_case(const SimulateOptions& options, const BenchCase& bench);

}  // namespace ferry::app
