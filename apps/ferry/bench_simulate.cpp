#include "ferry/bench_simulate.h"

namespace ferry::app {

void add_simulate_options(CLI::App& command, SimulateOptions& options) {
  CLI::Option* simulate = command.add_flag(
      "--simulate", options.simulate,
      "compute, for up to 2048 ranks, what a round puts on every link and the least time of it; runs nothing");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->needs(simulate)->capture_default_str();
  };
  const CLI::Range speeds(1e-6, 1e6);
  const CLI::Range times(0.0, 1e6);
  add("--ranks-per-node", options.ranks_per_node, "simulate: ranks that NVLink joins")
      ->check(CLI::Range(1, kMaxRanksPerNode));
  add("--node-limit", options.node_limit, "simulate: a token's experts lie in at most this many nodes; 0: anywhere")
      ->check(CLI::Range(0, kMaxTopK));
  add("--nvlink", options.nvlink_gb, "simulate: GB/s of a rank within its node, each way")->check(speeds);
  add("--nvlink-us", options.nvlink_us, "simulate: latency within a node")->check(times);
  add("--nic", options.nic_gb, "simulate: GB/s of a rank between nodes, each way")->check(speeds);
  add("--nic-us", options.nic_us, "simulate: latency between nodes")->check(times);
  add("--nic-operations", options.nic_operations, "simulate: puts and signals of a rank's NIC in a us; 0: no limit")
      ->check(times);
}

SimulatedCase simulated_case(const SimulateOptions& options, const BenchCase& bench) {
  Cluster cluster;
  cluster.ranks = bench.shape.ranks;
  cluster.ranks_per_node = options.ranks_per_node;
  cluster.speed = {LinkSpeed{options.nvlink_gb * 1e9, options.nvlink_us * 1e-6, 0},
                   LinkSpeed{options.nic_gb * 1e9, options.nic_us * 1e-6, options.nic_operations * 1e6}};
  return {bench, cluster, options.node_limit};
}

}  // namespace ferry::app
