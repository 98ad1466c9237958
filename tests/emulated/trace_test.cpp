// What a Trace has of GPUs: every kernel that carries tokens, in order, also those of replayed graphs, and its steps.
// What it has of the calls is as on CPUs (tests/unit/trace_test.cpp).
#include "ferry/trace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "emulated/device_rank.h"
#include "emulated/emulated_ranks.h"
#include "ferry/detail/cuda/state/kernel_params.h"
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
  if (order == RowOrder::by_source) settings.options.row_orders = {order};
  return conformance::make_scenario(settings);
}

constexpr long kKernels = 2000;  // their track; those of their steps follow

// A kernel of a rank, or a step of one, as its line has it.
struct Slice {
  long track = 0;
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

std::string text_after(const std::string& line, const std::string& key) {
  const std::string text = after(line, key + "\"");
  return text.substr(0, text.find('"'));
}

// What a rank has on tracks of kernels. Its tracks are named for what they hold.
std::vector<Slice> slices_of(const std::string& events, int rank) {
  std::map<long, std::string> names;
  std::vector<Slice> slices;
  std::istringstream lines(events);
  for (std::string line; std::getline(lines, line);) {
    const long track = std::stol(after(line, "\"tid\":"));
    if (track < kKernels || std::stol(after(line, "\"pid\":")) % 10'000 != rank) continue;
    const std::string name = text_after(line, "\"name\":");
    if (name == "thread_name") names[track] = text_after(line, "\"args\":{\"name\":");
    if (line.find("\"ph\":\"X\"") == std::string::npos) continue;
    const long begin = nanoseconds(after(line, "\"ts\":"));
    slices.push_back(
        {track, name, std::stol(after(line, "\"dispatch\":")), begin, begin + nanoseconds(after(line, "\"dur\":"))});
    EXPECT_EQ(names[track], track == kKernels ? "kernels on the GPU" : "kernel: " + name);
  }
  return slices;
}
std::vector<Slice> kernels_of(const std::string& events, int rank) {
  std::vector<Slice> kernels;
  for (const Slice& slice : slices_of(events, rank))
    if (slice.track == kKernels) kernels.push_back(slice);
  return kernels;
}

const std::map<std::string, Names> kStepsOf = {{"dispatch kernel", {"route", "send", "wait", "lay out"}},
                                               {"dispatch kernel: sends", {"route", "send"}},
                                               {"dispatch kernel: receives", {"wait", "lay out"}},
                                               {"combine kernel", {"send", "sum"}},
                                               {"combine kernel: sends", {"send"}},
                                               {"combine kernel: sums", {"sum"}}};

// Each step of a kernel is there once, on a track of its own, and lies within its kernel. Steps go on beside each
// other, but what lays out waits before, and for a table of this rank, too.
void expect_steps(const std::vector<Slice>& slices) {
  std::map<long, std::string> named;
  for (std::size_t i = 0; i < slices.size();) {
    const Slice& kernel = slices[i];
    ASSERT_EQ(kernel.track, kKernels);
    std::map<std::string, Slice> steps;
    Names names;
    for (++i; i < slices.size() && slices[i].track != kKernels; ++i) {
      const Slice& step = slices[i];
      names.push_back(step.name);
      steps[step.name] = step;
      EXPECT_EQ(named.try_emplace(step.track, step.name).first->second, step.name);
      EXPECT_EQ(step.dispatch, kernel.dispatch);
      EXPECT_LT(kernel.begin, step.begin) << step.name;  // whoever looks at an emulated clock finds a later time
      EXPECT_LT(step.begin, step.end) << step.name;
      EXPECT_LT(step.end, kernel.end) << step.name;
    }
    EXPECT_EQ(names, kStepsOf.at(kernel.name)) << kernel.name;
    if (steps.count("wait") == 0) continue;
    EXPECT_LE(steps["wait"].begin, steps["lay out"].begin);
    EXPECT_LE(steps["wait"].end, steps["lay out"].end);
    if (steps.count("route") == 0) continue;
    EXPECT_LE(steps["route"].begin, steps["lay out"].begin);
  }
}

// And their steps.
void expect_kernels(const std::string& events, int rank, const Names& of_round, int rounds) {
  const std::vector<Slice> kernels = kernels_of(events, rank);
  ASSERT_EQ(kernels.size(), of_round.size() * static_cast<std::size_t>(rounds));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(kernels[i].name, of_round[i % of_round.size()]);
    EXPECT_EQ(kernels[i].dispatch, static_cast<long>(i / of_round.size()) + 1);
    EXPECT_LE(kernels[i].begin, kernels[i].end);
    if (i == 0) continue;
    EXPECT_LE(kernels[i - 1].end, kernels[i].begin);
  }
  expect_steps(slices_of(events, rank));
}

class EmulatedTrace : public EmulatedGpus {};

// While the exchange lives, and when it is gone.
TEST_F(EmulatedTrace, HasTheKernelsOfEveryRound) {
  const Names of_round{"dispatch kernel", "combine kernel"};
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place}) {
    const Scenario scenario = scenario_of(kRanks, order);
    Trace trace;
    std::string meanwhile[kRanks];
    run_cuda_ranks(kRanks, true, [&](World& world) {
      Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
      for (int round = 0; round < 3; ++round) conformance::run_round(exchange, scenario, conformance::Form::one_call);
      meanwhile[world.rank()] = trace.events();
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      expect_kernels(meanwhile[rank], rank, of_round, 3);
      expect_kernels(trace.events(), rank, of_round, 3);
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
        trace.events(), rank,
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
  expect_kernels(recorded, 0, {"dispatch kernel", "combine kernel"}, 5);
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
    const std::vector<Slice> kernels = kernels_of(trace.events(), 0);
    ASSERT_EQ(kernels.size(), 2u);
    EXPECT_EQ(kernels[0].dispatch, 2);
  });
}

// The parameters of kernels, as they are launched.
class EmulatedStepTimes : public EmulatedGpus {
 protected:
  void SetUp() override {
    EmulatedGpus::SetUp();
    change_params<cuda::DispatchParams>([this](cuda::DispatchParams& params) { times.push_back(params.step_times); });
    change_params<cuda::CombineParams>([this](cuda::CombineParams& params) { times.push_back(params.step_times); });
  }
  void TearDown() override {
    change_params<cuda::DispatchParams>({});
    change_params<cuda::CombineParams>({});
    EmulatedGpus::TearDown();
  }
  std::vector<cuda::StepTimes*> times;
};

// Kernels have somewhere to write only while a Trace records. After it the times stay as the last combine left them.
TEST_F(EmulatedStepTimes, AreWrittenOnlyWhileATraceRecords) {
  const Scenario scenario = scenario_of(1);
  run_cuda_ranks(1, true, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    const auto run_round = [&] { conformance::run_round(exchange, scenario, conformance::Form::one_call); };
    const auto read = [&] {
      cuda::StepTimes found;
      cuda::cuda_check(cudaMemcpy(&found, times[2], sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
      return found;
    };
    run_round();
    Trace trace;
    run_round();
    trace.stop();
    const cuda::StepTimes before = read();
    run_round();
    const cuda::StepTimes after = read();
    EXPECT_EQ(times, (std::vector<cuda::StepTimes*>{nullptr, nullptr, times[2], times[2], nullptr, nullptr}));
    EXPECT_NE(times[2], nullptr);
    EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
    EXPECT_EQ(before.begin[static_cast<int>(cuda::KernelStep::route)].raw, 0u);
    EXPECT_NE(before.begin[static_cast<int>(cuda::KernelStep::sum)].raw, 0u);
  });
}

}  // namespace
}  // namespace ferry::test
