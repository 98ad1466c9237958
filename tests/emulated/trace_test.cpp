// What a Trace has of GPUs: every kernel that carries tokens, in order, also those of replayed graphs. What it has of
// the calls is as on CPUs (tests/unit/trace_test.cpp).
#include "ferry/trace.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "emulated/device_rank.h"
#include "gpu/captured_graph.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using Names = std::vector<std::string>;

constexpr int kRanks = 2;

Scenario scenario_of(int ranks, RowOrder order = RowOrder::by_expert) {
  ScenarioSettings settings;
  settings.shape = {ranks, 6, 2, 9, 64};
  settings.options = conformance::options_for("mxfp8");
  settings.row_orders = {order};
  return conformance::make_scenario(settings);
}

// One kernel of a rank, as its line has it.
struct Kernel {
  std::string name;
  long dispatch = 0;
  long begin = 0;  // ns
  long end = 0;
};

std::string after(const std::string& line, const std::string& key) {
  const std::size_t at = line.find(key);
  return at == std::string::npos ? "0" : line.substr(at + key.size());
}
long nanoseconds(std::string microseconds) {
  microseconds.erase(microseconds.find('.'), 1);
  return std::stol(microseconds);
}

std::vector<Kernel> kernels_of(const std::string& events, int rank) {
  std::vector<Kernel> kernels;
  std::istringstream lines(events);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"ph\":\"X\"") == std::string::npos || line.find(" kernel") == std::string::npos) continue;
    if (std::stol(after(line, "\"pid\":")) % 10'000 != rank) continue;
    const std::string name = after(line, "\"name\":\"");
    const long begin = nanoseconds(after(line, "\"ts\":"));
    kernels.push_back({name.substr(0, name.find('"')), std::stol(after(line, "\"dispatch\":")), begin,
                       begin + nanoseconds(after(line, "\"dur\":"))});
  }
  return kernels;
}

void expect_kernels(const std::vector<Kernel>& kernels, const Names& of_round, int rounds) {
  ASSERT_EQ(kernels.size(), of_round.size() * static_cast<std::size_t>(rounds));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(kernels[i].name, of_round[i % of_round.size()]);
    EXPECT_EQ(kernels[i].dispatch, static_cast<long>(i / of_round.size()) + 1);
    EXPECT_LE(kernels[i].begin, kernels[i].end);
    if (i == 0) continue;
    EXPECT_LE(kernels[i - 1].end, kernels[i].begin);
  }
}

class EmulatedTrace : public EmulatedGpus {};

// While the exchange lives, and when it is gone.
TEST_F(EmulatedTrace, HasTheKernelsOfEveryRound) {
  for (const auto& [order, of_round] :
       {std::pair{RowOrder::by_expert, Names{"dispatch kernel", "combine kernel"}},
        std::pair{RowOrder::padded, Names{"dispatch kernel: sends", "dispatch kernel: receives", "combine kernel"}}}) {
    const Scenario scenario = scenario_of(kRanks, order);
    Trace trace;
    std::string meanwhile[kRanks];
    run_cuda_ranks(kRanks, true, [&](World& world) {
      Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
      for (int round = 0; round < 3; ++round) conformance::run_round(exchange, scenario, conformance::Form::one_call);
      meanwhile[world.rank()] = trace.events();
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      expect_kernels(kernels_of(meanwhile[rank], rank), of_round, 3);
      expect_kernels(kernels_of(trace.events(), rank), of_round, 3);
    }
  }
}

TEST_F(EmulatedTrace, HasTheKernelsOfHalves) {
  const Scenario scenario = scenario_of(kRanks);
  Trace trace;
  run_cuda_ranks(kRanks, true, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    conformance::run_round(exchange, scenario, conformance::Form::split);
  });
  for (int rank = 0; rank < kRanks; ++rank)
    expect_kernels(
        kernels_of(trace.events(), rank),
        {"dispatch kernel: sends", "dispatch kernel: receives", "combine kernel: sends", "combine kernel: sums"}, 1);
}

// A graph that was captured while a Trace recorded has its kernels recorded by each replay.
TEST_F(EmulatedTrace, HasReplayedGraphs) {
  const Scenario scenario = scenario_of(1);
  Trace trace;
  std::string recorded;
  run_cuda_ranks(1, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, 0);
    const CapturedGraph graph(rank.stream.get(), [&] {
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
    });
    rank.exchange.dispatch(round.in, round.out, rank.call);
    rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
    for (int replay = 0; replay < 4; ++replay) graph.launch(rank.stream.get());
    cuda::cuda_check(cudaStreamSynchronize(rank.stream.get()), "cudaStreamSynchronize");
    recorded = trace.events();
    rank.check_rows(round);
  });
  expect_kernels(kernels_of(recorded, 0), {"dispatch kernel", "combine kernel"}, 5);
}

// Only the calls that a Trace saw.
TEST_F(EmulatedTrace, HasNothingOfBeforeAndAfter) {
  const Scenario scenario = scenario_of(1);
  run_cuda_ranks(1, true, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    const auto run_round = [&] { conformance::run_round(exchange, scenario, conformance::Form::one_call); };
    run_round();
    Trace trace;
    run_round();
    trace.stop();
    run_round();
    const std::vector<Kernel> kernels = kernels_of(trace.events(), 0);
    ASSERT_EQ(kernels.size(), 2u);
    EXPECT_EQ(kernels[0].dispatch, 2);
  });
}

}  // namespace
}  // namespace ferry::test
