// Cases over memory that is given back and taken again: rounds before and after give the same bytes, what was kept
// stays good, and calls in between are refused.
#include <iterator>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

// Slots of several pages.
constexpr Shape kShape{.ranks = 3, .experts = 10, .top_k = 4, .max_tokens = 16, .hidden = 512};

ScenarioSettings settings_for(const char* format, Reduction reduction, std::uint64_t seed, const char* routing) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, reduction);
  settings.seed = seed;
  settings.routing = routing;
  return settings;
}

// Runs `body` on all ranks. Skipped where the world keeps its memory: all ranks of a world agree on that.
void with_release(const Target& target, int ranks, const std::string& what, const std::function<void(World&)>& body) {
  on_ranks(target, ranks, what, [&](World& world) {
    if (!world.capabilities().release) throw Skipped("the exchanges of this world cannot give memory back");
    body(world);
  });
}

void give_back_and_take_again(Exchange& exchange) {
  const std::size_t before = exchange.memory_bytes();
  exchange.release();
  if (exchange.memory_bytes() >= before)
    throw Failure(exchange.rank(), "memory_bytes() after release", "less than " + std::to_string(before),
                  std::to_string(exchange.memory_bytes()));
  exchange.restore();
  expect_equal(exchange.rank(), "memory_bytes() after restore", before, exchange.memory_bytes());
}

void rounds(const Target& target, const char* format, Reduction reduction, bool skips) {
  const char* const routings[] = {"ragged", "uniform", "empty_ranks"};
  std::vector<Scenario> scenarios;
  for (std::uint64_t i = 0; i < std::size(routings); ++i) {
    ScenarioSettings settings = settings_for(format, reduction, 30 + i, routings[i]);
    settings.options.skip_a2a = skips;
    scenarios.push_back(make_scenario(settings));
  }
  with_release(target, kShape.ranks, "rounds between release and restore", [&](World& world) {
    Exchange exchange(world, kShape, scenarios[0].settings.options);
    give_back_and_take_again(exchange);  // before any round
    for (const Form form : {Form::split, Form::one_call})
      for (const Scenario& scenario : scenarios) {
        run_round(exchange, scenario, form);
        give_back_and_take_again(exchange);
      }
    give_back_and_take_again(exchange);
    run_round(exchange, scenarios[0], Form::split);
  });
}

// Rounds whose combine comes after restore, or never, and a handle of before.
void kept(const Target& target, Reduction reduction) {
  const Scenario first = make_scenario(settings_for("mxfp8", reduction, 40, "ragged"));
  const Scenario second = make_scenario(settings_for("mxfp8", reduction, 41, "some_none"));
  with_release(target, kShape.ranks, "what was kept over release and restore", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    Exchange exchange(world, kShape, first.settings.options);
    HandleMemory handle(exchange);
    RankRound with_handle(first, world.rank());
    with_handle.out.handle = handle.tensor();
    run_dispatch(exchange, with_handle, Form::split);
    with_handle.check_rows();
    for (int repeat = 0; repeat < 3; ++repeat) {
      RankRound open(second, world.rank());
      run_dispatch(exchange, open, Form::split);
      open.check_rows();
      give_back_and_take_again(exchange);
      RankRound back(first, world.rank());
      back.combine_in.src_info = {};
      back.combine_in = combine_input_with(back, handle);
      run_combine(exchange, back, Form::one_call);
      back.check_tokens();
      if (repeat == 0) continue;  // no combine at all
      run_combine(exchange, open, Form::one_call);
      open.check_tokens();
      give_back_and_take_again(exchange);
      RankRound replay(first, world.rank());
      replay.in = input_with(replay, handle);
      run_dispatch(exchange, replay, Form::one_call);
      replay.check_rows();
    }
  });
}

void refused(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, 50, "uniform"));
  with_release(target, kShape.ranks, "calls that release and restore refuse", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, scenario.settings.options);
    RankRound round(scenario, rank);
    const auto refuses = [&](const char* place, const std::vector<std::string>& fragments,
                             const std::function<void()>& call) {
      expect_error(rank, place, ErrorKind::out_of_order, fragments, call);
    };
    refuses("restore before release", {"restore", "release()"}, [&] { exchange.restore(); });
    exchange.dispatch_async(round.in);
    refuses("release in a dispatch", {"release", "dispatch_wait"}, [&] { exchange.release(); });
    exchange.dispatch_wait(round.out);
    round.check_rows();
    exchange.combine_async(round.combine_in);
    refuses("release in a combine", {"release", "combine_wait"}, [&] { exchange.release(); });
    exchange.combine_wait(round.combine_out);
    round.check_tokens();

    exchange.release();
    refuses("release after release", {"restore()"}, [&] { exchange.release(); });
    refuses("dispatch_async", {"restore()"}, [&] { exchange.dispatch_async(round.in); });
    refuses("dispatch_wait", {"restore()"}, [&] { exchange.dispatch_wait(round.out); });
    refuses("dispatch", {"restore()"}, [&] { exchange.dispatch(round.in, round.out); });
    refuses("wait_for_counts", {"restore()"}, [&] { exchange.wait_for_counts(); });
    refuses("combine_async", {"restore()"}, [&] { exchange.combine_async(round.combine_in); });
    refuses("combine_wait", {"restore()"}, [&] { exchange.combine_wait(round.combine_out); });
    refuses("combine", {"restore()"}, [&] { exchange.combine(round.combine_in, round.combine_out); });
    refuses("add_to_mask", {"restore()"}, [&] { exchange.add_to_mask(RankMask(kShape.ranks)); });
    exchange.check();
    exchange.restore();
    refuses("restore after restore", {"release()"}, [&] { exchange.restore(); });
    run_round(exchange, scenario, Form::split);
  });
}

// One rank may not release yet: no rank does, and all are told which rank it was.
void refused_by_one(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, 51, "uniform"));
  with_release(target, kShape.ranks, "release where one rank is half done", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    exchange.dispatch_async(round.in);
    if (world.rank() != 1) exchange.dispatch_wait(round.out);
    expect_error(world.rank(), "release", ErrorKind::out_of_order, {"rank 1", "dispatch_wait"},
                 [&] { exchange.release(); });
    if (world.rank() == 1) exchange.dispatch_wait(round.out);
    round.check_rows();
    exchange.release();
    exchange.restore();
    run_combine(exchange, round, Form::split);
    round.check_tokens();
  });
}

// One rank has something to tell, which check() would throw there alone: all ranks are told it, and none waits for that
// rank.
void told_by_one(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", Reduction::by_rank, 54, "uniform");
  settings.overflow = Overflow::reported;
  settings.room_percent = 50;
  settings.spare_rows = 0;
  const Scenario scenario = make_scenario(settings);
  with_release(target, kShape.ranks, "release where one rank's rows had no room", [&](World& world) {
    if (!world.capabilities().overflow) throw Skipped("the exchanges of this world write all rows that come");
    Exchange exchange(world, kShape, settings.options);
    RankRound round(scenario, world.rank());
    if (world.rank() != 1) round.in.overflow = Overflow::expected;
    run_dispatch(exchange, round, Form::one_call);
    round.check_rows();
    expect_error(world.rank(), "release", ErrorKind::invalid_argument, {"rank 1", "more rows than room"},
                 [&] { exchange.release(); });
    give_back_and_take_again(exchange);
    run_combine(exchange, round, Form::split);
    round.check_tokens();
  });
}

// A rank left between rounds and the others masked it: they give memory back, and take it again, without that rank.
void without_a_masked_rank(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  constexpr std::size_t kLost = 1;
  const Scenario all = make_scenario(settings_for("mxfp8", Reduction::by_rank, 53, "uniform"));
  ScenarioSettings settings = all.settings;
  settings.options.mask = RankMask(kShape.ranks);
  settings.options.mask[kLost] = true;
  const Scenario survivors = make_scenario(settings);
  with_release(target, kShape.ranks, "release without a masked rank", [&](World& world) {
    Exchange exchange(world, kShape, all.settings.options);
    run_round(exchange, all, Form::split);
    if (world.rank() == static_cast<int>(kLost)) return;
    exchange.add_to_mask(settings.options.mask);
    for (const Form form : {Form::split, Form::one_call}) {
      give_back_and_take_again(exchange);
      run_round(exchange, survivors, form);
    }
  });
}

void unsupported(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, 52, "uniform"));
  on_ranks(target, kShape.ranks, "release where memory cannot be given back", [&](World& world) {
    if (world.capabilities().release) throw Skipped("the exchanges of this world can give memory back");
    Exchange exchange(world, kShape, scenario.settings.options);
    expect_error(world.rank(), "release", ErrorKind::unsupported, {"release", world.backend()},
                 [&] { exchange.release(); });
    run_round(exchange, scenario, Form::split);
  });
}

}  // namespace

void add_release_cases(Cases& cases) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const std::string name = to_string(reduction);
    cases.push_back({"release/rounds_" + name, "rounds before and after release and restore", true,
                     [reduction](const Target& target) { rounds(target, "mxfp8", reduction, false); }});
    cases.push_back({"release/kept_" + name, "handles and open rounds over release and restore", true,
                     [reduction](const Target& target) { kept(target, reduction); }});
  }
  cases.push_back({"release/skip_a2a", "release and restore where nothing is sent", true,
                   [](const Target& target) { rounds(target, "bf16", Reduction::by_rank, true); }});
  cases.push_back({"release/refused", "release and restore out of order, and calls between them", true, refused});
  cases.push_back({"release/refused_by_one", "release where one rank is half done", true, refused_by_one});
  cases.push_back({"release/told_by_one", "release where one rank has something to tell", true, told_by_one});
  cases.push_back({"release/masked_rank", "release and restore without a rank that left", true, without_a_masked_rank});
  cases.push_back({"release/unsupported", "release where memory cannot be given back", true, unsupported});
}

}  // namespace ferry::conformance
