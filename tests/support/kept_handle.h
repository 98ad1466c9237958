// What tests of handles share: a dispatch that has left one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "conformance/rounds/handle_sequence.h"
#include "support/fake_world.h"

namespace ferry::test {

inline conformance::ScenarioSettings settings_of(Shape shape, const char* format, Reduction reduction,
                                                 int workers = 1) {
  conformance::ScenarioSettings settings;
  settings.shape = shape;
  settings.options = conformance::options_for(format, reduction);
  settings.options.expert_alignment = 4;
  settings.options.workers = workers;
  return settings;
}

inline constexpr Shape kShape{.ranks = 3, .experts = 6, .top_k = 3, .max_tokens = 5, .hidden = 32};

struct Kept {
  Kept(Exchange& exchange, const conformance::Scenario& scenario)
      : round(scenario, exchange.rank()), handle(exchange, scenario) {
    round.out.handle = handle.tensor();
    conformance::run_dispatch(exchange, round, conformance::Form::one_call);
    round.check_rows();
  }
  conformance::RankRound round;
  conformance::HandleMemory handle;
};

inline conformance::Scenario scenario_of(std::uint64_t seed, const char* routing = "uniform",
                                         Reduction reduction = Reduction::by_rank) {
  conformance::ScenarioSettings settings = settings_of(kShape, "bf16", reduction);
  settings.seed = seed;
  settings.routing = routing;
  return conformance::make_scenario(settings);
}

// The text of the Error(invalid_argument) that `call` throws; empty: none.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace ferry::test
