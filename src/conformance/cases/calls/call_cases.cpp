// Cases over the calls: their two forms, many rounds on one exchange, two exchanges at once, rounds that are abandoned,
// and calls that come in the wrong order.
#include <stdexcept>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 10, .top_k = 4, .max_tokens = 12, .hidden = 64};

ScenarioSettings settings_for(const char* format, Reduction reduction, std::uint64_t seed,
                              const char* routing = "ragged") {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, reduction);
  settings.seed = seed;
  settings.routing = routing;
  return settings;
}

// Plans with the same options and other data in each.
std::vector<Scenario> scenarios_of(const char* format, Reduction reduction, int count) {
  const auto routings = test::routing_cases();
  std::vector<Scenario> scenarios;
  for (int i = 0; i < count; ++i)
    scenarios.push_back(make_scenario(settings_for(format, reduction, 100 + static_cast<std::uint64_t>(i),
                                                   routings[static_cast<std::size_t>(i) % routings.size()].name)));
  return scenarios;
}

void many_rounds(const Target& target, Reduction reduction, bool pauses) {
  const std::vector<Scenario> scenarios = scenarios_of("mxfp8", reduction, 36);
  on_ranks(target, kShape.ranks, "many rounds on one exchange", [&](World& world) {
    Exchange exchange(world, kShape, scenarios[0].settings.options);
    test::Random random(static_cast<std::uint64_t>(world.rank()));
    for (const Scenario& scenario : scenarios) {
      if (pauses) std::this_thread::sleep_for(std::chrono::microseconds(random.below(2'000)));
      run_round(exchange, scenario, random.below(2) == 0 && pauses ? Form::one_call : Form::split);
    }
  });
}

void two_exchanges(const Target& target) {
  ScenarioSettings settings = settings_for("fp8_block128", Reduction::by_rank, 1);
  ScenarioSettings other = settings_for("nvfp4", Reduction::exact, 2, "zipf");
  settings.options.concurrent = other.options.concurrent = 2;
  const Scenario first = make_scenario(settings);
  const Scenario second = make_scenario(other);
  on_ranks(target, kShape.ranks, "two exchanges in flight", [&](World& world) {
    Exchange a(world, kShape, settings.options);
    Exchange b(world, kShape, other.options);
    for (int repeat = 0; repeat < 5; ++repeat) {
      RankRound on_a(first, world.rank());
      RankRound on_b(second, world.rank());
      a.dispatch_async(on_a.in);
      b.dispatch_async(on_b.in);
      b.dispatch_wait(on_b.out);
      a.dispatch_wait(on_a.out);
      on_a.check_rows();
      on_b.check_rows();
      a.combine_async(on_a.combine_in);
      b.combine_async(on_b.combine_in);
      b.combine_wait(on_b.combine_out);
      a.combine_wait(on_a.combine_out);
      on_a.check_tokens();
      on_b.check_tokens();
    }
  });
}

void abandoned_rounds(const Target& target, Reduction reduction) {
  const std::vector<Scenario> scenarios = scenarios_of("bf16", reduction, 12);
  on_ranks(target, kShape.ranks, "abandoned combines", [&](World& world) {
    Exchange exchange(world, kShape, scenarios[0].settings.options);
    for (std::size_t i = 0; i < scenarios.size(); ++i) {
      RankRound round(scenarios[i], world.rank());
      run_dispatch(exchange, round, i % 2 == 0 ? Form::split : Form::one_call);
      round.check_rows();
      if (i % 3 == 0) continue;  // no combine at all
      exchange.combine_async(round.combine_in);
      if (i % 3 == 1) continue;  // sent, but not waited for
      exchange.combine_wait(round.combine_out);
      round.check_tokens();
    }
  });
}

// Inputs may be overwritten as soon as dispatch_async returns.
void inputs_are_free_after_async(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, 5));
  on_ranks(target, kShape.ranks, "inputs overwritten after dispatch_async", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    for (int repeat = 0; repeat < 4; ++repeat) {
      RankRound round(scenario, world.rank());
      exchange.dispatch_async(round.in);
      for (std::vector<std::byte>* memory : {&round.tokens, &round.topk_ids, &round.weights})
        std::fill(memory->begin(), memory->end(), kPoison);
      exchange.dispatch_wait(round.out);
      round.check_rows();
      run_combine(exchange, round, Form::split);
      round.check_tokens();
    }
  });
}

void wrong_order(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("mxfp4", Reduction::by_rank, 6));
  on_ranks(target, kShape.ranks, "calls in the wrong order", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, scenario.settings.options);
    RankRound round(scenario, rank);
    const auto refused = [&](const char* place, const std::function<void()>& call) {
      expect_error(rank, place, ErrorKind::out_of_order, {}, call);
    };
    refused("dispatch_wait before dispatch_async", [&] { exchange.dispatch_wait(round.out); });
    refused("combine before any dispatch", [&] { exchange.combine(round.combine_in, round.combine_out); });
    refused("combine_wait before any dispatch", [&] { exchange.combine_wait(round.combine_out); });
    exchange.dispatch_async(round.in);
    refused("a second dispatch_async", [&] { exchange.dispatch_async(round.in); });
    refused("dispatch after dispatch_async", [&] { exchange.dispatch(round.in, round.out); });
    refused("combine_async before dispatch_wait", [&] { exchange.combine_async(round.combine_in); });
    exchange.dispatch_wait(round.out);
    round.check_rows();
    refused("a second dispatch_wait", [&] { exchange.dispatch_wait(round.out); });
    refused("combine_wait before combine_async", [&] { exchange.combine_wait(round.combine_out); });
    exchange.combine_async(round.combine_in);
    refused("a second combine_async", [&] { exchange.combine_async(round.combine_in); });
    exchange.combine_wait(round.combine_out);
    round.check_tokens();
    refused("a second combine", [&] { exchange.combine(round.combine_in, round.combine_out); });
    run_round(exchange, scenario, Form::one_call);
  });
}

// `call` must let out what a hook threw.
void expect_thrown(int rank, const char* place, const std::function<void()>& call) {
  try {
    call();
  } catch (const std::range_error&) {
    return;
  }
  throw Failure(rank, place, "what the hook threw", "nothing");
}

// What a hook throws reaches its caller; the call may then be repeated, and the other ranks notice nothing.
void throwing_hooks(const Target& target, int workers) {
  if (!target.hooks_may_throw) throw Skipped("hooks of this backend do not run on the host");
  ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank, 8, "uniform");
  settings.options.workers = workers;
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "hooks that throw", [&](World& world) {
    Exchange exchange(world, kShape, settings.options);
    for (int repeat = 0; repeat < 3; ++repeat) {
      RankRound round(scenario, world.rank());
      if (world.rank() == 1) {
        DispatchInput bad = round.in;
        bad.topk_weights = {};
        bad.router_weight = [](void*, int, int) -> float { throw std::range_error("no weight"); };
        expect_thrown(1, "dispatch_async", [&] { exchange.dispatch_async(bad); });
      }
      run_dispatch(exchange, round, Form::split);
      round.check_rows();
      exchange.combine_async(round.combine_in);
      if (world.rank() == 1) {
        CombineOutput bad;
        bad.epilogue = [](void*, int, int, const float*, int) { throw std::range_error("no epilogue"); };
        expect_thrown(1, "combine_wait", [&] { exchange.combine_wait(bad); });
      }
      exchange.combine_wait(round.combine_out);
      round.check_tokens();
    }
  });
}

// An exchange that was moved from refuses every call; the one that it was moved to goes on.
void moved_exchange(const Target& target) {
  const ScenarioSettings settings = settings_for("bf16", Reduction::by_rank, 9, "uniform");
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "a moved exchange", [&](World& world) {
    const int rank = world.rank();
    Exchange first(world, kShape, settings.options);
    run_round(first, scenario, Form::split);
    Exchange second = std::move(first);
    RankRound round(scenario, rank);
    Exchange& empty = first;  // NOLINT(bugprone-use-after-move): what is left of it is what the case is about
    expect_error(rank, "dispatch", ErrorKind::out_of_order, {"moved"}, [&] { empty.dispatch(round.in, round.out); });
    expect_error(rank, "combine_wait", ErrorKind::out_of_order, {"moved"},
                 [&] { empty.combine_wait(round.combine_out); });
    expect_error(rank, "stats", ErrorKind::out_of_order, {"moved"}, [&] { (void)empty.stats(); });
    round.check_untouched();
    run_round(second, scenario, Form::one_call);
  });
}

void forms(const Target& target) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    for (const Form form : {Form::split, Form::one_call})
      run_scenario(target, settings_for("mxfp8", reduction, 3), form);
}

}  // namespace

void add_call_cases(Cases& cases) {
  cases.push_back({"calls/forms", "async and wait, and both in one call", true, forms});
  cases.push_back({"calls/many_rounds_by_rank", "36 rounds with changing data on one exchange", true,
                   [](const Target& b) { many_rounds(b, Reduction::by_rank, false); }});
  cases.push_back({"calls/many_rounds_exact", "36 rounds with changing data on one exchange", false,
                   [](const Target& b) { many_rounds(b, Reduction::exact, false); }});
  cases.push_back({"calls/late_ranks", "the same bytes when ranks come late at random", true,
                   [](const Target& b) { many_rounds(b, Reduction::by_rank, true); }});
  cases.push_back({"calls/two_exchanges", "two rounds in flight on two exchanges", true, two_exchanges});
  cases.push_back({"calls/abandoned_by_rank", "a dispatch abandons the combine before it", true,
                   [](const Target& b) { abandoned_rounds(b, Reduction::by_rank); }});
  cases.push_back({"calls/abandoned_exact", "a dispatch abandons the combine before it", true,
                   [](const Target& b) { abandoned_rounds(b, Reduction::exact); }});
  cases.push_back({"calls/inputs_are_free", "nothing of the input is read after dispatch_async", true,
                   inputs_are_free_after_async});
  cases.push_back({"calls/wrong_order", "calls that the round does not allow are refused", true, wrong_order});
  cases.push_back({"calls/moved", "an exchange that was moved from refuses every call", true, moved_exchange});
  cases.push_back({"calls/throwing_hooks", "what a hook throws reaches the caller, and the exchange goes on", true,
                   [](const Target& b) {
                     throwing_hooks(b, 1);
                     throwing_hooks(b, 3);
                   }});
}

}  // namespace ferry::conformance
