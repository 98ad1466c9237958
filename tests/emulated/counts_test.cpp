// What a host asks of a dispatch in memory of a GPU: outputs of exactly that size, a rank that does not come, captures.
// The conformance suite has the same in host memory, in every order of rows and format.
#include <gmock/gmock.h>

#include <memory>

#include "emulated/device_rank.h"
#include "emulated/late_puts.h"
#include "emulated/late_world.h"
#include "exchange/sizes/sizes.h"
#include "gpu/captured_graph.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr int kRanks = 3;

Scenario scenario_of(std::uint64_t seed, bool exact_rows = true) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for("fp8_block128");
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::in_place};
  settings.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::in_place};
  settings.routing = "ragged";
  settings.seed = seed;
  settings.exact_rows = exact_rows;
  settings.spare_rows = 0;
  return conformance::make_scenario(settings);
}

class EmulatedCounts : public EmulatedGpus {};

TEST_F(EmulatedCounts, GiveOutputsOfThatSize) {
  const Scenario first = scenario_of(3), second = scenario_of(4);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, first);
    for (const Scenario* scenario : {&first, &second, &first}) {
      DeviceRound round(*scenario, world.rank());
      rank.exchange.dispatch_async(round.in, rank.call);
      EXPECT_EQ(rank.exchange.wait_for_counts(rank.call).rows,
                static_cast<std::int64_t>(scenario->rows[static_cast<std::size_t>(world.rank())].rows.size()));
      rank.exchange.dispatch_wait(round.out, rank.call);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
      rank.check_rows(round);
      round.host.check_tokens();
    }
  });
}

// The counts of one dispatch say nothing of the next.
TEST_F(EmulatedCounts, AreOfTheirDispatchAlone) {
  const Scenario exact = scenario_of(3), worst = scenario_of(3, false);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, exact);
    DeviceRound small(exact, world.rank()), large(worst, world.rank());
    rank.exchange.dispatch_async(small.in, rank.call);
    rank.exchange.wait_for_counts(rank.call);
    rank.exchange.dispatch_wait(small.out, rank.call);
    rank.exchange.dispatch_async(large.in, rank.call);
    conformance::expect_error(world.rank(), "outputs of the dispatch before", ErrorKind::invalid_argument,
                              {"rows", "limit"}, [&] { rank.exchange.dispatch_wait(small.out, rank.call); });
    rank.exchange.dispatch_wait(large.out, rank.call);
    rank.check_rows(large);
  });
}

TEST_F(EmulatedCounts, OfARankThatDoesNotComeNameIt) {
  const Scenario scenario = scenario_of(5);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    if (world.rank() != 1) {
      CallOptions soon = rank.call;
      soon.deadline = std::chrono::milliseconds(80);
      rank.exchange.dispatch_async(round.in, soon);
      try {
        rank.exchange.wait_for_counts(soon);
        ADD_FAILURE() << "rank " << world.rank() << " missed nobody";
      } catch (const PeerMissing& missing) {
        EXPECT_EQ(missing.record().missing_rank, 1) << missing.what();
      }
    }
    world.barrier();
  });
}

TEST_F(EmulatedCounts, AreRefusedInACapture) {
  const Scenario scenario = scenario_of(6, false);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    const auto refused = [&](const char* what) {
      conformance::expect_error(world.rank(), what, ErrorKind::out_of_order, {"wait_for_counts", what},
                                [&] { rank.exchange.wait_for_counts(rank.call); });
    };
    const CapturedGraph half(rank.stream.get(), [&] {
      rank.exchange.dispatch_async(round.in, rank.call);
      refused("the stream is being captured");
    });
    refused("the dispatch was captured");
    const CapturedGraph other(rank.stream.get(), [&] { rank.exchange.dispatch_wait(round.out, rank.call); });
    for (int replay = 0; replay < 3; ++replay) {
      world.barrier();
      round.reset(rank.stream.get());
      half.launch(rank.stream.get());
      other.launch(rank.stream.get());
      rank.check_rows(round);
    }
    world.barrier();
  });
}

// In a capture nobody else can be told.
TEST_F(EmulatedCounts, OfTooManyTokensAreNotAskedInACapture) {
  const Scenario scenario = scenario_of(7, false);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    DispatchInput many = round.in;
    many.tokens.shape[0] = many.topk_ids.shape[0] = many.topk_weights.shape[0] = scenario.settings.shape.max_tokens + 1;
    const CapturedGraph graph(rank.stream.get(), [&] {
      conformance::expect_error(world.rank(), "too many tokens in a capture", ErrorKind::invalid_argument,
                                {"10 rows", "max_tokens = 9"}, [&] { rank.exchange.dispatch_async(many, rank.call); });
      rank.exchange.dispatch(round.in, round.out, rank.call);
    });
    world.barrier();
    graph.launch(rank.stream.get());
    rank.check_rows(round);
    world.barrier();
  });
}

// The messages of a dispatch that is refused are long on their way. The dispatches that follow have the right rows. The
// test does not show that a kernel waits for its puts: it passes without that wait, too.
TEST_F(EmulatedCounts, LeaveARefusedDispatchBetweenNodesBehind) {
  const Scenario first = scenario_of(8, false), second = scenario_of(9, false), third = scenario_of(10, false);
  const HeapMap map = make_heap_map(first.settings.shape, first.settings.options, 0, true);
  const Lag lag{map.begin(HeapMap::kMessages), map.begin(HeapMap::kTables), 3'000};
  emulated::reset({.late_stays = true});
  run_worlds(make_late_worlds(kRanks), [&](World& world) {
    DeviceRank rank(world, first);
    for (int turn = 0; turn < 4; ++turn) {
      DeviceRound round(first, world.rank());
      if (world.rank() == turn % kRanks)
        round.in.tokens.shape[0] = round.in.topk_ids.shape[0] = round.in.topk_weights.shape[0] =
            first.settings.shape.max_tokens + 1;
      if (world.rank() == 0) LateNet::hold_up(lag);
      world.barrier();
      rank.exchange.dispatch_async(round.in, rank.call);
      conformance::expect_error(world.rank(), "too many tokens", ErrorKind::invalid_argument, {"10 rows"},
                                [&] { rank.exchange.wait_for_counts(rank.call); });
      world.barrier();
      if (world.rank() == 0) LateNet::hold_up({});
      world.barrier();
      for (const Scenario* scenario : {&second, &third}) {
        DeviceRound good(*scenario, world.rank());
        rank.exchange.dispatch(good.in, good.out, rank.call);
        rank.check_rows(good);
      }
    }
  });
  EXPECT_EQ(emulated::failure(), "");
  emulated::reset({});  // nothing that is still late arrives
}

}  // namespace
}  // namespace ferry::test
