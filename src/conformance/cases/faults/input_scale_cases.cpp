// Cases over input scales: those that no format can encode by, and those that differ between ranks. CPU ranks all
// refuse a dispatch whose scales differ. GPU ranks hear of it behind the dispatch, each from what the others said.
#include <limits>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 3, .max_tokens = 10, .hidden = 64};
constexpr float kScale = 37.5f, kOther = 2.0f;

Scenario scenario_of(float scale) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for("nvfp4");
  settings.seed = 77;
  settings.input_scale = scale;
  return make_scenario(settings);
}

void refuse_input_scale(const Target& target) {
  const Scenario scenario = scenario_of(1.0f);
  on_ranks(target, kShape.ranks, "bad input scales", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float scale : {0.0f, -1.0f, infinity, std::numeric_limits<float>::quiet_NaN()}) {
      RankRound round(scenario, world.rank());
      round.in.input_scale = &scale;
      expect_error(world.rank(), "input_scale " + std::to_string(scale), ErrorKind::invalid_argument, {"input_scale"},
                   [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
    }
    run_round(exchange, scenario, Form::split);
  });
}

// One rank has another scale, by a handle where there is one. Every rank names one that has another than it has.
void one_differs(Exchange& exchange, const Scenario& scenario, HandleMemory* handle, int odd, bool is_gpu) {
  const int rank = exchange.rank();
  const int named = rank != odd ? odd : odd == 0 ? 1 : 0;
  const auto refused = [&](const auto& call) {
    expect_error(rank, "input scales that differ", ErrorKind::invalid_argument,
                 {"input_scale", "37.5", "2", "on rank " + std::to_string(named)}, call);
  };
  const float scale = rank == odd ? kOther : kScale;
  for (const Form form : {Form::split, Form::one_call}) {
    RankRound round(scenario, rank);
    if (handle != nullptr) round.in = input_with(round, *handle);
    round.in.input_scale = &scale;
    if (!is_gpu) {
      refused([&] { run_dispatch(exchange, round, form); });
    } else {
      run_dispatch(exchange, round, form);
      if (form == Form::split) {
        refused([&] { check_until_told(exchange); });
      } else {  // when the next dispatch has ended, its kernels have compared
        RankRound next(scenario, rank);
        refused([&] {
          run_dispatch(exchange, next, form);
          exchange.check();
        });
      }
      exchange.check();
    }
    run_round(exchange, scenario, form);
  }
}

void refuse_other_input_scale(const Target& target) {
  const Scenario scenario = scenario_of(kScale);
  on_ranks(target, kShape.ranks, "input scales that differ", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    for (int odd = 0; odd < kShape.ranks; ++odd)
      one_differs(exchange, scenario, nullptr, odd, world.capabilities().gpus);
  });
}

void refuse_other_input_scale_of_replays(const Target& target) {
  const Scenario scenario = scenario_of(kScale);
  on_ranks(target, kShape.ranks, "input scales that differ in replays", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world leave no handles");
    Exchange exchange(world, kShape, scenario.settings.options);
    HandleMemory handle(exchange);
    RankRound round(scenario, world.rank());
    round.out.handle = handle.tensor();
    run_dispatch(exchange, round, Form::one_call);
    for (int odd = 0; odd < kShape.ranks; ++odd)
      one_differs(exchange, scenario, &handle, odd, world.capabilities().gpus);
  });
}

}  // namespace

void add_input_scale_cases(Cases& cases) {
  cases.push_back({"refusals/input_scale", "input scales that are not finite and positive", true, refuse_input_scale});
  cases.push_back(
      {"refusals/other_input_scale", "an input scale that differs on one rank", true, refuse_other_input_scale});
  cases.push_back({"refusals/other_input_scale_of_replays", "the same in dispatches with a handle", true,
                   refuse_other_input_scale_of_replays});
}

}  // namespace ferry::conformance
