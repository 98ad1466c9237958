// Long runs with more ranks than cores: random pauses between calls, random forms and abandoned rounds, two exchanges
// that take turns. The schedule comes from a seed and is the same on all ranks; the pauses differ.
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

struct Step {
  std::size_t scenario = 0;
  std::size_t exchange = 0;
  Form form = Form::split;
  enum class Ends { combined, after_dispatch, after_combine_async } ends = Ends::combined;
};

struct Schedule {
  std::vector<ScenarioSettings> exchanges;       // one for each exchange
  std::vector<std::vector<Scenario>> scenarios;  // [exchange]
  std::vector<Step> steps;
};

Schedule make_schedule(std::uint64_t seed, int ranks, int steps) {
  test::Random random(seed);
  Schedule schedule;
  const auto routings = test::routing_cases();
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    ScenarioSettings settings;
    settings.shape = {ranks, ranks + random.below(9), 3, random.between(4, 10), 64};
    settings.options = options_for(reduction == Reduction::exact ? "mxfp4" : "fp8_block128", reduction);
    settings.options.concurrent = 2;
    settings.options.workers = random.between(1, 2);
    schedule.exchanges.push_back(settings);
    std::vector<Scenario> scenarios;
    for (int i = 0; i < 6; ++i) {
      settings.seed = random.bits() % 1000;
      settings.routing = routings[static_cast<std::size_t>(random.below(static_cast<int>(routings.size())))].name;
      scenarios.push_back(make_scenario(settings));
    }
    schedule.scenarios.push_back(std::move(scenarios));
  }
  for (int i = 0; i < steps; ++i) {
    Step step;
    step.exchange = static_cast<std::size_t>(random.below(2));
    step.scenario = static_cast<std::size_t>(random.below(6));
    step.form = random.chance(0.5) ? Form::split : Form::one_call;
    step.ends = random.chance(0.8)   ? Step::Ends::combined
                : random.chance(0.5) ? Step::Ends::after_dispatch
                                     : Step::Ends::after_combine_async;
    schedule.steps.push_back(step);
  }
  return schedule;
}

void pause(test::Random& random) {
  if (random.chance(0.1)) std::this_thread::sleep_for(std::chrono::microseconds(random.below(1'500)));
  if (random.chance(0.2)) std::this_thread::yield();
}

void run_step(Exchange& exchange, const Scenario& scenario, const Step& step, test::Random& pauses) {
  RankRound round(scenario, exchange.rank());
  pause(pauses);
  if (step.form == Form::one_call) {
    exchange.dispatch(round.in, round.out);
  } else {
    exchange.dispatch_async(round.in);
    pause(pauses);
    exchange.dispatch_wait(round.out);
  }
  round.check_rows();
  pause(pauses);
  if (step.ends == Step::Ends::after_dispatch) return;
  if (step.ends == Step::Ends::after_combine_async) return exchange.combine_async(round.combine_in);
  if (step.form == Form::one_call) {
    exchange.combine(round.combine_in, round.combine_out);
  } else {
    exchange.combine_async(round.combine_in);
    pause(pauses);
    exchange.combine_wait(round.combine_out);
  }
  round.check_tokens();
}

void stress(const Target& target, std::uint64_t seed, int ranks, int steps) {
  const Schedule schedule = make_schedule(seed, ranks, steps);
  on_ranks(target, ranks, "stress with seed " + std::to_string(seed), [&](World& world) {
    test::Random pauses(seed * 100 + static_cast<std::uint64_t>(world.rank()));
    std::vector<Exchange> exchanges;
    for (const ScenarioSettings& settings : schedule.exchanges)
      exchanges.emplace_back(world, settings.shape, settings.options);
    for (const Step& step : schedule.steps)
      run_step(exchanges[step.exchange], schedule.scenarios[step.exchange][step.scenario], step, pauses);
  });
}

}  // namespace

void add_stress_cases(Cases& cases) {
  cases.push_back({"stress/short", "3 ranks, random pauses, forms and abandoned rounds", true,
                   [](const Target& target) { stress(target, 1, 3, 30); }});
  for (std::uint64_t seed = 2; seed <= 4; ++seed)
    cases.push_back({"stress/eight_ranks_" + std::to_string(seed), "8 ranks, random pauses, forms and abandoned rounds",
                     false, [seed](const Target& target) { stress(target, seed, 8, 80); }});
}

}  // namespace ferry::conformance
