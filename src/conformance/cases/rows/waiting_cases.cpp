// Cases over waiting times that a dispatch or a combine adds to an output.
#include <algorithm>
#include <chrono>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

ScenarioSettings settings_of_three() {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
  settings.options = options_for("bf16");
  settings.seed = 61;
  settings.more_outputs = true;
  return settings;
}

using Nanoseconds = std::chrono::nanoseconds;

// Calls `waited_in`, which returns how long this rank waited for rank 0 where that comes so late, until each rank
// waited for half of it. A busy machine may hold a rank up, which then comes late itself; so the delay grows.
template <class WaitedIn>
void expect_waits(World& world, const WaitedIn& waited_in) {
  for (Nanoseconds late = std::chrono::milliseconds(200);; late *= 2) {
    const Nanoseconds waited = waited_in(late);
    const std::byte mine{world.rank() == 0 || waited >= late / 2};
    std::vector<std::byte> all(static_cast<std::size_t>(world.size()));
    world.all_gather(std::span(&mine, 1), all, {}, kSuiteDeadline);
    if (std::ranges::count(all, std::byte{1}) == world.size()) return;
    if (late > std::chrono::seconds(2))
      expect_equal(world.rank(), "nanoseconds waited for rank 0, at least half of its delay",
                   static_cast<std::uint64_t>(late.count()), static_cast<std::uint64_t>(waited.count()));
  }
}

void come_late(const World& world, Nanoseconds late) {
  if (world.rank() == 0) std::this_thread::sleep_for(late);
}

// Rank 0 comes late: the others have waited for it.
void waited(const Target& target) {
  const ScenarioSettings settings = settings_of_three();
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, settings.shape.ranks, "waited_ns", [&](World& world) {
    require_orders(world, settings);
    Exchange exchange(world, settings.shape, settings.options);
    run_round(exchange, scenario, Form::split);
    expect_waits(world, [&](Nanoseconds late) {
      world.barrier();
      come_late(world, late);
      RankRound round(scenario, world.rank());
      std::vector<std::int64_t> waited(static_cast<std::size_t>(settings.shape.ranks));
      round.out.waited_ns = Tensor(waited.data(), DType::i64, {settings.shape.ranks});
      run_dispatch(exchange, round, Form::one_call);
      run_combine(exchange, round, Form::one_call);
      return Nanoseconds(waited[0]);
    });
  });
}

// The same of a combine.
void waited_for_results(const Target& target) {
  const ScenarioSettings settings = settings_of_three();
  const Scenario scenario = make_scenario(settings);
  constexpr std::int64_t kBefore = 7;
  on_ranks(target, settings.shape.ranks, "waited_ns of a combine", [&](World& world) {
    require_orders(world, settings);
    Exchange exchange(world, settings.shape, settings.options);
    run_round(exchange, scenario, Form::split);
    for (const Form form : {Form::split, Form::one_call}) {
      expect_waits(world, [&](Nanoseconds late) {
        RankRound round(scenario, world.rank());
        std::vector<std::int64_t> waited(static_cast<std::size_t>(settings.shape.ranks), kBefore);
        round.combine_out.waited_ns = Tensor(waited.data(), DType::i64, {settings.shape.ranks});
        run_dispatch(exchange, round, form);
        world.barrier();
        come_late(world, late);
        run_combine(exchange, round, form);
        round.check_tokens();
        for (const std::int64_t each : waited)
          expect_equal(world.rank(), "waited_ns grows (1: yes)", 1, each >= kBefore ? 1 : 0);
        return Nanoseconds(waited[0] - kBefore);
      });
      RankRound round(scenario, world.rank());
      std::vector<std::int64_t> waited(static_cast<std::size_t>(settings.shape.ranks));
      round.combine_out.waited_ns = Tensor(waited.data(), DType::i32, {settings.shape.ranks});
      run_dispatch(exchange, round, form);
      expect_error(world.rank(), "waited_ns of i32", ErrorKind::invalid_argument, {"waited_ns", "i32", "i64"},
                   [&] { exchange.combine(round.combine_in, round.combine_out); });
      world.barrier();
    }
  });
}

// With skip_a2a one rank is waited for, oneself: one number.
void waited_for_itself(const Target& target) {
  ScenarioSettings settings = settings_of_three();
  settings.options.skip_a2a = true;
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, settings.shape.ranks, "waited_ns with skip_a2a", [&](World& world) {
    require_orders(world, settings);
    Exchange exchange(world, settings.shape, settings.options);
    RankRound round(scenario, world.rank());
    std::vector<std::int64_t> waited{3, 7};
    round.combine_out.waited_ns = Tensor(waited.data(), DType::i64, {1});
    run_dispatch(exchange, round, Form::split);
    run_combine(exchange, round, Form::split);
    round.check_tokens();
    expect_equal(world.rank(), "waited_ns grows (1: yes)", 1, waited[0] >= 3 ? 1 : 0);
    expect_equal(world.rank(), "behind waited_ns", 7, static_cast<std::uint64_t>(waited[1]));
  });
}

}  // namespace

void add_waiting_cases(Cases& cases) {
  cases.push_back({"outputs/waited", "waiting times of a dispatch", true, waited});
  cases.push_back({"outputs/waited_for_results", "waiting times of a combine", true, waited_for_results});
  cases.push_back({"outputs/waited_for_itself", "waiting times of a combine with skip_a2a", true, waited_for_itself});
}

}  // namespace ferry::conformance
