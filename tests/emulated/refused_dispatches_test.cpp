// A dispatch that is refused for too many tokens of one rank, in memory of a GPU, at ranks whose hosts do not ask: what
// they have enqueued before they know does nothing, whichever calls it is, and then they go on. The conformance suite
// has the same in host memory, where hosts always know.
#include <vector>

#include "emulated/refusing_rank.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

// A rank knows when it combines, or not before it has combined. The next call throws, and only that one. The rank with
// too many calls both halves, or the whole.
TEST_P(EmulatedRefusals, AreThrownByTheNextCall) {
  constexpr RowOrder kExpert = RowOrder::by_expert, kSource = RowOrder::by_source;
  const std::vector<RowOrder> of_ranks[] = {{kExpert},
                                            {kSource},
                                            {RowOrder::padded},
                                            {RowOrder::in_place},
                                            {kExpert, kExpert, kSource},
                                            {kSource, kSource, RowOrder::in_place}};
  for (const std::vector<RowOrder>& orders : of_ranks) {
    const Scenario scenario = conformance::make_scenario(settings_of(orders, 3));
    run([&](World& world) {
      RefusingRank rank(world, scenario);
      std::uint64_t dispatches = 0;
      for (const bool in_halves : {false, true})
        for (const bool combines : {false, true}) {
          DeviceRound round(scenario, world.rank());
          const DispatchInput in = rank.refused_input(round);
          const auto dispatch = [&] {
            if (!in_halves) return rank.exchange.dispatch(in, round.out, rank.call);
            rank.exchange.dispatch_async(in, rank.call);
            rank.exchange.dispatch_wait(round.out, rank.call);
          };
          const auto combine = [&] {
            if (!in_halves) return rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
            rank.exchange.combine_async(round.combine_in, rank.call);
            rank.exchange.combine_wait(round.combine_out, rank.call);
          };
          if (rank.is_odd()) {
            rank.expect_refused("a dispatch", dispatch);
          } else if (combines) {
            enqueue_held([&] {
              dispatch();
              combine();
            });
            rank.wait();
            rank.expect_refused("a check", [&] { rank.exchange.check(); });
          } else {
            dispatch();
            rank.wait();
            rank.expect_refused("a combine", combine);
          }
          rank.exchange.check();
          rank.good_round(scenario, in_halves);
          rank.expect_dispatches(dispatches += 2);
        }
    });
  }
}

// Other dispatches, too, calls with handles of a dispatch before, and the halves of such calls.
TEST_P(EmulatedRefusals, LeaveNothingOfWhatWasCalledSince) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 4));
  const Scenario other = with_other_tokens(scenario, scenario.settings, 5);
  run([&](World& world) {
    RefusingRank rank(world, scenario);
    Handle handle(rank.exchange), none(rank.exchange);
    HandleRound first(scenario, world.rank()), again(other, world.rank()), lost(other, world.rank());
    rank.exchange.dispatch(first.in, first.leaving(handle), rank.call);
    for (int turn = 0; turn < 2; ++turn) {
      DeviceRound round(scenario, world.rank());
      const DispatchInput in = rank.refused_input(round);
      if (rank.is_odd()) {
        rank.expect_refused("a dispatch", [&] { rank.exchange.dispatch(in, round.out, rank.call); });
      } else {
        enqueue_held([&] {
          rank.exchange.dispatch(in, lost.leaving(none), rank.call);
          rank.exchange.combine(lost.combine_in, lost.combine_out, rank.call);
          for (int i = 0; i <= world.rank(); ++i) {
            rank.exchange.dispatch(lost.in, lost.out, rank.call);
            rank.exchange.combine(lost.returned(handle), lost.combine_out, rank.call);
            rank.exchange.dispatch(lost.replayed(handle), lost.out, rank.call);
          }
          if (turn == 1) rank.exchange.combine_async(lost.returned(handle), rank.call);
        });
        rank.wait();
        rank.expect_refused("the call after all of them", [&] {
          if (turn == 1) return rank.exchange.combine_wait(lost.combine_out, rank.call);
          rank.exchange.dispatch_async(lost.in, rank.call);
        });
      }
      first.reset(rank.stream.get());
      rank.exchange.combine(first.returned(handle), first.combine_out, rank.call);
      again.reset(rank.stream.get());
      rank.exchange.dispatch(again.replayed(handle), again.out, rank.call);
      rank.exchange.combine(again.returned(handle), again.combine_out, rank.call);
      rank.check_rows(again);
      again.host.check_tokens();
      first.fetch();
      first.host.check_tokens();
      rank.good_round(other);
      rank.expect_dispatches(static_cast<std::uint64_t>(1 + 3 * (turn + 1)));
    }
  });
}

// The handle that the dispatch was to leave is none, so it ends the exchange as any other that is none.
TEST_P(EmulatedRefusals, LeaveNoHandle) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 4));
  run([&](World& world) {
    RefusingRank rank(world, scenario);
    const Handle none(rank.exchange);
    HandleRound round(scenario, world.rank());
    const DispatchInput in = rank.refused_input(round);
    rank.expect_refused("a dispatch", [&] {
      rank.exchange.dispatch(in, round.leaving(none), rank.call);
      rank.wait();
      rank.exchange.check();
    });
    world.barrier();  // a bad handle ends the exchange on all ranks, also where the refusal is not known yet
    conformance::expect_error(world.rank(), "its handle", ErrorKind::invalid_argument, {"handle", "first word is 0"},
                              [&] {
                                rank.exchange.combine(round.returned(none), round.combine_out, rank.call);
                                rank.wait();
                                rank.exchange.check();
                              });
    world.barrier();
  });
}

// A combine with a handle that was half done before is so still.
TEST_P(EmulatedRefusals, LeaveHalfACombineThatCameBefore) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 6));
  run([&](World& world) {
    RefusingRank rank(world, scenario);
    Handle handle(rank.exchange);
    HandleRound first(scenario, world.rank());
    rank.exchange.dispatch(first.in, first.leaving(handle), rank.call);
    rank.exchange.combine_async(first.returned(handle), rank.call);
    DeviceRound round(scenario, world.rank());
    const DispatchInput in = rank.refused_input(round);
    if (rank.is_odd()) {
      rank.expect_refused("a dispatch", [&] { rank.exchange.dispatch(in, round.out, rank.call); });
    } else {
      rank.exchange.dispatch(in, round.out, rank.call);
      rank.wait();
      rank.expect_refused("the other half", [&] { rank.exchange.combine_wait(first.combine_out, rank.call); });
    }
    rank.exchange.combine_wait(first.combine_out, rank.call);
    first.fetch();
    first.host.check_tokens();
    rank.good_round(scenario);
  });
}

// A rank that asks in a dispatch that does nothing gets no answer, and hears why at once.
TEST_P(EmulatedRefusals, AreTheAnswerToAQuestionThatCameSince) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 7));
  run([&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    const DispatchInput in = rank.refused_input(round);
    if (rank.is_odd()) {
      rank.expect_refused("a dispatch", [&] { rank.exchange.dispatch(in, round.out, rank.call); });
    } else {
      enqueue_held([&] {
        rank.exchange.dispatch(in, round.out, rank.call);
        rank.exchange.dispatch_async(round.in, rank.call);
      });
      rank.expect_refused("wait_for_counts", [&] { rank.exchange.wait_for_counts(rank.call); });
    }
    rank.good_round(scenario);
    rank.expect_dispatches(2);
  });
}

// Each rank learns it when its own device is so far, and calls what it likes meanwhile.
TEST_P(EmulatedRefusals, AreLearntAtAnyTime) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 8));
  run([&](World& world) {
    RefusingRank rank(world, scenario);
    for (int turn = 0; turn < 4; ++turn) {
      DeviceRound round(scenario, world.rank());
      const DispatchInput in = rank.refused_input(round);
      rank.expect_refused("some call", [&] {
        rank.exchange.dispatch(in, round.out, rank.call);
        for (int i = 0;; ++i) {
          if (i > (world.rank() + turn) % 4) rank.wait();
          rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
          rank.exchange.dispatch(round.in, round.out, rank.call);
        }
      });
      rank.good_round(scenario);
      rank.expect_dispatches(static_cast<std::uint64_t>(2 * (turn + 1)));
    }
  });
}

std::string name_of(const testing::TestParamInfo<Setting>& setting) { return setting.param.name; }
INSTANTIATE_TEST_SUITE_P(, EmulatedRefusals,
                         testing::Values(Setting{"Stores"}, Setting{"StoresOneIsSlow", false, 0},
                                         Setting{"StoresTheOddOneIsSlow", false, kOdd}, Setting{"Nodes", true},
                                         Setting{"NodesOneIsSlow", true, 2}),
                         name_of);

}  // namespace
}  // namespace ferry::test
