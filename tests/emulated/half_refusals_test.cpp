// Halves of combines with handles around a dispatch that is refused, at ranks whose hosts did not ask
// (refused_dispatches_test.cpp).
#include <vector>

#include "emulated/refusing_rank.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

struct HalfRefused : RefusingRank {
  HalfRefused(World& world, const Scenario& of)
      : RefusingRank(world, of), handle(exchange), first(of, world.rank()), round(of, world.rank()) {
    exchange.dispatch(first.in, first.leaving(handle), call);
  }
  void first_half() { exchange.combine_async(first.returned(handle), call); }
  void second_half() { exchange.combine_wait(first.combine_out, call); }
  void check_sums() {
    first.fetch();
    exchange.check();
    first.host.check_tokens();
  }

  Handle handle;
  HandleRound first;
  DeviceRound round;
};

ScenarioSettings settings_with_weights(std::uint64_t seed) {
  ScenarioSettings settings = settings_of({RowOrder::by_expert}, seed);
  settings.options.returns_weights = true;
  return settings;
}

// The first half came between the halves of the dispatch, so the second still follows.
TEST_P(EmulatedRefusals, LeaveHalfACombineThatBeganBetweenTheHalvesOfTheDispatch) {
  const Scenario scenario = conformance::make_scenario(settings_with_weights(6));
  run([&](World& world) {
    HalfRefused rank(world, scenario);
    const DispatchInput in = rank.refused_input(rank.round);
    rank.exchange.dispatch_async(in, rank.call);
    rank.first_half();
    if (rank.is_odd()) {
      rank.expect_refused("a dispatch", [&] { rank.exchange.dispatch_wait(rank.round.out, rank.call); });
    } else {
      rank.exchange.dispatch_wait(rank.round.out, rank.call);
      rank.wait();
      rank.expect_refused("a check", [&] { rank.exchange.check(); });
    }
    rank.second_half();
    rank.check_sums();
    rank.good_round(scenario);
  });
}

// The second half of a combine that began before is done, although the dispatch between them was refused. Those that
// began later do nothing.
TEST_P(EmulatedRefusals, DoNotKeepACombineFromItsSecondHalf) {
  const Scenario scenario = conformance::make_scenario(settings_with_weights(7));
  run([&](World& world) {
    HalfRefused rank(world, scenario);
    const DispatchInput in = rank.refused_input(rank.round);
    for (int turn = 0; turn < 3; ++turn) {
      rank.first.reset(rank.stream.get());
      HandleRound lost(scenario, world.rank());
      rank.first_half();
      if (rank.is_odd()) {
        rank.expect_refused("a dispatch", [&] { rank.exchange.dispatch(in, rank.round.out, rank.call); });
        rank.second_half();
      } else {
        enqueue_held([&] {
          rank.exchange.dispatch(in, rank.round.out, rank.call);
          rank.second_half();
          if (turn == 0) return;
          rank.exchange.combine_async(lost.returned(rank.handle), rank.call);
          if (turn == 1) rank.exchange.dispatch(lost.replayed(rank.handle), lost.out, rank.call);
          rank.exchange.combine_wait(lost.combine_out, rank.call);
          rank.exchange.dispatch(lost.in, lost.out, rank.call);
          rank.exchange.combine(lost.combine_in, lost.combine_out, rank.call);
        });
        rank.wait();
        rank.expect_refused("a check", [&] { rank.exchange.check(); });
      }
      rank.check_sums();
      lost.reset(rank.stream.get());
      rank.exchange.combine(lost.returned(rank.handle), lost.combine_out, rank.call);
      lost.fetch();
      lost.host.check_tokens();
      rank.good_round(scenario);
    }
  });
}

// A host may see that a dispatch was refused before its kernel has the number of the dispatch. Then it does not yet
// know which one it was, nor what came after.
TEST_P(EmulatedRefusals, AreNotKnownBeforeTheNumberOfTheDispatchIs) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 8));
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    emulated::reset({.seed = seed, .slow_device = GetParam().slow_device});
    run([&](World& world) {
      HalfRefused rank(world, scenario);
      const DispatchInput in = rank.refused_input(rank.round);
      rank.first_half();
      rank.expect_refused("a dispatch", [&] {
        rank.exchange.dispatch(in, rank.round.out, rank.call);
        while (true) rank.exchange.check();
      });
      rank.second_half();
      rank.check_sums();
    });
  }
}

}  // namespace
}  // namespace ferry::test
