// What a refused dispatch leaves behind at ranks whose hosts did not ask: graphs, a rank that leaves, messages that are
// still on their way, and the numbers of a device (refused_dispatches_test.cpp).
#include <memory>

#include "emulated/late_puts.h"
#include "emulated/refusing_rank.h"
#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"
#include "gpu/captured_graph.h"

namespace ferry::test {
namespace {

// A rank that leaves says what it has sent, and dispatches that did nothing are not among it: the others miss its
// results at once.
TEST_P(EmulatedRefusals, AreNotAmongWhatALeavingRankHasSent) {
  if (GetParam().has_nodes) GTEST_SKIP() << "who hears of it from a third rank does not hear why";
  ScenarioSettings settings = settings_of({RowOrder::by_expert}, 9);
  settings.options.deadline = std::chrono::minutes(10);
  const Scenario scenario = conformance::make_scenario(settings);
  run([&](World& world) {
    auto rank = std::make_unique<RefusingRank>(world, scenario);
    DeviceRound round(scenario, world.rank());
    const DispatchInput in = rank->refused_input(round);
    const bool leaves = world.rank() == 2;
    rank->expect_refused("a dispatch", [&] {
      enqueue_held([&] {
        if (rank->is_odd()) return;
        for (int i = 0; i < 3; ++i) rank->exchange.dispatch(i == 0 ? in : round.in, round.out, rank->call);
      });
      if (rank->is_odd()) rank->exchange.dispatch(in, round.out, rank->call);
      rank->wait();
      rank->exchange.check();
    });
    rank->exchange.dispatch(round.in, round.out, rank->call);
    rank->wait();
    if (leaves) rank.reset();
    world.barrier();
    if (!leaves)
      conformance::expect_error(world.rank(), "a combine", ErrorKind::aborted, {"rank 2", "destroyed its exchange"},
                                [&] {
                                  rank->exchange.combine(round.combine_in, round.combine_out, rank->call);
                                  rank->wait();
                                  rank->exchange.check();
                                });
    world.barrier();
  });
}

// One thread calls all ranks. The call of a rank with too many waits for ranks that come after it.
TEST_P(EmulatedRefusals, AreThoseOfAllRanksOfOneThread) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 9));
  struct Calls {
    std::vector<Exchange*> exchanges;
    std::vector<DispatchInput> in;
    std::vector<DispatchOutput> out;
    std::vector<CallOptions> calls;
  } all{std::vector<Exchange*>(kRefusingRanks), std::vector<DispatchInput>(kRefusingRanks),
        std::vector<DispatchOutput>(kRefusingRanks), std::vector<CallOptions>(kRefusingRanks)};
  run([&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    const auto at = static_cast<std::size_t>(world.rank());
    for (const bool last_two : {false, true}) {
      all.exchanges[at] = &rank.exchange;
      all.in[at] = rank.refused_input(round);
      if (last_two && world.rank() == 2)
        all.in[at].tokens.shape[0] = all.in[at].topk_ids.shape[0] = all.in[at].topk_weights.shape[0] = 11;
      all.out[at] = round.out;
      all.calls[at] = rank.call;
      world.barrier();
      if (world.rank() == 0)
        conformance::expect_error(0, "dispatch_all", ErrorKind::invalid_argument, {"tokens of rank 1 has 10 rows"},
                                  [&] { dispatch_all(all.exchanges, all.in, all.out, all.calls); });
      world.barrier();
      rank.wait();
      const bool has_thrown = rank.is_odd() || (last_two && world.rank() == 2);
      if (has_thrown)
        rank.exchange.check();
      else
        rank.expect_refused("a check", [&] { rank.exchange.check(); });
      rank.good_round(scenario);
    }
  });
}

// A graph is replayed behind a dispatch that is refused, in the graph itself or ahead of it.
TEST_P(EmulatedRefusals, StopGraphs) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 9));
  run([&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    const DispatchInput in = rank.refused_input(round);
    const auto call_round = [&] {
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
    };
    std::unique_ptr<CapturedGraph> graph;
    if (world.rank() == 2) graph = std::make_unique<CapturedGraph>(rank.stream.get(), call_round);
    const auto good_round = [&] {
      round.reset(rank.stream.get());
      if (world.rank() == 2)
        graph->launch(rank.stream.get());
      else
        call_round();
      rank.wait();
      rank.check_rows(round);
      round.host.check_tokens();
    };
    good_round();
    if (rank.is_odd()) {
      rank.expect_refused("a dispatch", [&] { rank.exchange.dispatch(in, round.out, rank.call); });
    } else if (world.rank() == 2) {
      for (int i = 0; i < 12; ++i) graph->launch(rank.stream.get());
      rank.expect_refused("a check, with replays behind it", [&] {
        while (true) rank.exchange.check();
      });
    } else {
      rank.exchange.dispatch(in, round.out, rank.call);
      rank.wait();
      rank.expect_refused("a check", [&] { rank.exchange.check(); });
      const CapturedGraph nothing(rank.stream.get(), [&] {
        conformance::expect_error(0, "a capture", ErrorKind::out_of_order, {"refused", "captured", "call check()"},
                                  [&] { rank.exchange.dispatch(round.in, round.out, rank.call); });
      });
      rank.exchange.check();
    }
    good_round();
    rank.expect_dispatches(3);
  });
}

// I1, I5: messages of a dispatch that is refused are long on their way from a rank that did not ask, and the others did
// not wait for them. So the rank itself waits before its next dispatch.
class EmulatedRefusedMessages : public EmulatedGpus {};
TEST_F(EmulatedRefusedMessages, HaveLandedBeforeTheNextDispatch) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 8));
  const HeapMap map = make_heap_map(scenario.settings.shape, scenario.settings.options, 0, true);
  const Lag lag{map.begin(HeapMap::kMessages), map.begin(HeapMap::kTables), 1'000'000};
  emulated::reset({.late_stays = true});
  run_worlds(make_late_worlds(kRefusingRanks), [&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    const DispatchInput in = rank.refused_input(round);
    const bool is_last = world.rank() == 2;
    const auto* const slots = rank.exchange.arrival_slots().payload.as<std::byte>();
    LateNet& net = LateNet::of(slots - map.begin(HeapMap::kMessages));
    if (!is_last) rank.exchange.dispatch_async(in, rank.call);
    rank.wait();
    world.barrier();
    if (is_last) {
      LateNet::hold_up(lag);
      rank.exchange.dispatch(in, round.out, rank.call);
      rank.wait();
      LateNet::hold_up({});
      EXPECT_FALSE(net.has_landed());
      rank.expect_refused("a check", [&] { rank.exchange.check(); });
      rank.exchange.check();
      EXPECT_TRUE(net.has_landed());
    }
    world.barrier();
    if (!is_last) rank.expect_refused("wait_for_counts", [&] { rank.exchange.wait_for_counts(rank.call); });
    rank.good_round(scenario);
  });
  EXPECT_EQ(emulated::failure(), "");
  emulated::reset({});  // nothing that is still late arrives
}

// Blocks of dispatches that did nothing have arrived, and the next one does not count them.
TEST_F(EmulatedRefusedMessages, AreForgottenTogetherWithBlocksThatArrived) {
  const ScenarioSettings settings = settings_of({RowOrder::by_expert}, 8);
  const HeapMap map = make_heap_map(settings.shape, settings.options, 0, false);
  const cuda::Launchers launchers = cuda::direct_launchers();
  launchers.small->prepare(make_plan(settings.shape, settings.options, map, 0));
  const cuda::DeviceMemory memory(sizeof(cuda::DeviceState));
  cuda::PeerLinks links;
  links.state = memory.as<cuda::DeviceState>();
  cuda::DeviceState& state = *links.state;
  state.dispatched.raw = state.refused.raw = 6;
  state.started.raw = 30;
  state.started_before = 21;
  EXPECT_TRUE(state.has_stopped());
  EXPECT_TRUE(state.dispatch_has_stopped());
  const Stream stream(0);
  launchers.small->forget_refused({links}, stream.get());
  cuda::cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  EXPECT_FALSE(state.has_stopped());
  EXPECT_EQ(state.started_before, 30u);
  state.refused.raw = 6;  // the newest dispatch itself, and none after it
  EXPECT_TRUE(state.has_stopped());
  EXPECT_FALSE(state.dispatch_has_stopped());
}

}  // namespace
}  // namespace ferry::test
