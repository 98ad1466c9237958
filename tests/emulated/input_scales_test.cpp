// I26: input scales that differ between ranks. A kernel finds those of one dispatch in the next one, and the call after
// that says so; check() finds those of the newest dispatch.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "emulated/device_rank.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr float kScale = 37.5f, kOther = 2.0f;

// Format 1 is bf16.
Scenario scenario_of(int ranks, int format = 0) {
  ScenarioSettings settings;
  settings.shape = {ranks, 10, 3, 12, 96};
  settings.options = conformance::options_for("nvfp4");
  settings.options.more_formats = {{.format = format_named("bf16"), .expert_alignment = 1}};
  settings.format = format;
  settings.options = conformance::exchange_options(settings);
  settings.routing = "uniform";
  settings.seed = 5;
  settings.input_scale = kScale;
  return conformance::make_scenario(settings);
}

struct ScaledRank : DeviceRank {
  ScaledRank(World& of_rank, const Scenario& of_round)
      : DeviceRank(of_rank, of_round), world(of_rank), scenario(of_round), scales(2 * sizeof(float)) {
    const float both[] = {kScale, kOther};
    cuda::cuda_check(cudaMemcpy(scales.data(), both, sizeof both, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  // All ranks have ended it when this returns.
  void dispatch(float scale) { dispatch(scenario, scales.as<float>() + (scale == kScale ? 0 : 1)); }
  void dispatch(const Scenario& of_round, const float* scale) {
    DeviceRound round(of_round, world.rank());
    round.in.input_scale = scale;
    exchange.dispatch(round.in, round.out, call);
    round.fetch(stream.get());
    world.barrier();
  }
  void expect_told(int odd, const std::function<void()>& throws) {
    const int named = world.rank() != odd ? odd : odd == 0 ? 1 : 0;
    const char* const values = world.rank() == odd ? "was 2 here and 37.5 on rank " : "was 37.5 here and 2 on rank ";
    conformance::expect_error(world.rank(), "input scales that differ", ErrorKind::invalid_argument,
                              {"input_scale of an earlier dispatch", values + std::to_string(named)}, throws);
    exchange.check();
    world.barrier();
  }
  World& world;
  const Scenario& scenario;
  cuda::DeviceMemory scales;
};

class EmulatedInputScales : public EmulatedGpus {
 protected:
  static void run(int ranks, const Scenario& scenario, const std::function<void(ScaledRank&, int odd)>& body) {
    run_cuda_ranks(ranks, false, [&](World& world) {
      ScaledRank rank(world, scenario);
      for (int odd = 0; odd < ranks; ++odd) body(rank, odd);
      world.barrier();
    });
  }
};

// No host looks between the calls.
TEST_F(EmulatedInputScales, ThatDifferAreFoundByTheNextDispatch) {
  for (const int ranks : {2, 3})
    run(ranks, scenario_of(ranks), [&](ScaledRank& rank, int odd) {
      rank.dispatch(rank.world.rank() == odd ? kOther : kScale);
      rank.dispatch(kScale);
      rank.expect_told(odd, [&] { rank.dispatch(kScale); });
      for (int i = 0; i < 5; ++i) rank.dispatch(kScale);
      rank.exchange.check();
    });
}

TEST_F(EmulatedInputScales, ThatDifferAreFoundByACheck) {
  run(3, scenario_of(3), [&](ScaledRank& rank, int odd) {
    rank.exchange.check();
    rank.dispatch(rank.world.rank() == odd ? kOther : kScale);
    rank.expect_told(odd, [&] { rank.exchange.check(); });
    rank.dispatch(kScale);  // whose kernel finds the same
    rank.dispatch(kScale);
    rank.exchange.check();
  });
}

// A dispatch in a format that uses none compares what the one before it said, and says nothing.
TEST_F(EmulatedInputScales, ThatDifferAreFoundByADispatchInAnotherFormat) {
  const Scenario in_bf16 = scenario_of(2, 1);
  run(2, scenario_of(2), [&](ScaledRank& rank, int odd) {
    rank.dispatch(rank.world.rank() == odd ? kOther : kScale);
    rank.dispatch(in_bf16, nullptr);
    rank.expect_told(odd, [&] { rank.dispatch(in_bf16, nullptr); });
    for (int i = 0; i < 3; ++i) rank.dispatch(kScale);
    rank.dispatch(in_bf16, nullptr);
    rank.dispatch(kScale);
    rank.exchange.check();
  });
}

// A rank that gives none has 1.
TEST_F(EmulatedInputScales, ThatAreLeftOutAreOne) {
  const Scenario scenario = scenario_of(2);
  run(2, scenario, [&](ScaledRank& rank, int) {
    DeviceRound round(scenario, rank.world.rank());
    round.in.input_scale = rank.world.rank() == 0 ? nullptr : rank.scales.as<float>();
    rank.exchange.dispatch(round.in, round.out, rank.call);
    round.fetch(rank.stream.get());
    rank.world.barrier();
    conformance::expect_error(rank.world.rank(), "a scale beside none", ErrorKind::invalid_argument,
                              {rank.world.rank() == 0 ? "was 1 here and 37.5" : "was 37.5 here and 1 on rank 0"},
                              [&] { rank.exchange.check(); });
    rank.world.barrier();
  });
}

}  // namespace
}  // namespace ferry::test
