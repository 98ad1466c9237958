// What a host asks of a dispatch in memory of a GPU: outputs of exactly that size, a rank that does not come, captures.
// The conformance suite has the same in host memory, in every order of rows and format.
#include <gmock/gmock.h>

#include <memory>
#include <vector>

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

// I1, I5: messages of a dispatch that is refused are long on their way. Its count_kernel waits for them. Without that
// wait the rank that is ahead sends the messages of the second next dispatch, whose slots are the same, before they
// have come.
TEST_F(EmulatedCounts, WaitForTheMessagesOfARefusedDispatchBetweenNodes) {
  ScenarioSettings settings = scenario_of(8, false).settings;
  settings.routing = "uniform";
  std::vector<Scenario> scenarios;
  for (const std::uint64_t seed : {8, 9, 10}) {
    settings.seed = seed;
    scenarios.push_back(conformance::make_scenario(settings));
  }
  const Scenario& refused = scenarios[0];
  const HeapMap map = make_heap_map(settings.shape, settings.options, 0, true);
  const Lag lag{map.begin(HeapMap::kMessages), map.begin(HeapMap::kTables), 1'000'000};
  emulated::reset({.late_stays = true});
  run_worlds(make_late_worlds(kRanks), [&](World& world) {
    DeviceRank rank(world, refused);
    const auto wait = [&] { cuda::cuda_check(cudaStreamSynchronize(rank.stream.get()), "cudaStreamSynchronize"); };
    for (int turn = 0; turn < 2 * kRanks; ++turn) {
      DeviceRound round(refused, world.rank());
      const bool is_ahead = world.rank() == turn % kRanks;
      if (world.rank() == (turn + 1) % kRanks)
        round.in.tokens.shape[0] = round.in.topk_ids.shape[0] = round.in.topk_weights.shape[0] =
            settings.shape.max_tokens + 1;
      if (!is_ahead) rank.exchange.dispatch_async(round.in, rank.call);
      wait();
      world.barrier();
      if (is_ahead) {
        LateNet::hold_up(lag);
        rank.exchange.dispatch_async(round.in, rank.call);
        wait();
        LateNet::hold_up({});
      }
      world.barrier();
      conformance::expect_error(world.rank(), "too many tokens", ErrorKind::invalid_argument, {"10 rows"},
                                [&] { rank.exchange.wait_for_counts(rank.call); });
      for (std::size_t i = 1; i < scenarios.size(); ++i) {
        DeviceRound good(scenarios[i], world.rank());
        rank.exchange.dispatch(good.in, good.out, rank.call);
        rank.check_rows(good);
      }
    }
  });
  EXPECT_EQ(emulated::failure(), "");
  emulated::reset({});  // nothing that is still late arrives
}

// I15: counts that are given are still on their way from this rank's own copy when its next dispatch gives others.
TEST_F(EmulatedCounts, ThatAreGivenBetweenNodesAreSentFromTwoCopies) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 4, .experts = 10, .top_k = 3, .max_tokens = 9, .hidden = 96};
  settings.options = conformance::options_for("mxfp8");
  settings.options.row_orders = {RowOrder::by_source};
  settings.row_orders = {RowOrder::by_source};
  settings.weights = conformance::WeightForm::none;
  settings.by_counts = true;
  const Scenario first = conformance::make_scenario(settings);
  settings.seed = 11;
  const Scenario second = conformance::make_scenario(settings);
  const HeapMap map = make_heap_map(settings.shape, settings.options, 0, true);
  const Lag lag{map.begin(HeapMap::kGivenCounts), map.begin(HeapMap::kSentGivenCounts), 1'000'000};
  emulated::reset({.late_stays = true});
  run_worlds(make_late_worlds(4), [&](World& world) {
    DeviceRank rank(world, first);
    DeviceRound of_first(first, world.rank()), of_second(second, world.rank());
    const auto wait = [&] { cuda::cuda_check(cudaStreamSynchronize(rank.stream.get()), "cudaStreamSynchronize"); };
    const auto take = [&](DeviceRound& round) {
      rank.exchange.dispatch_wait(round.out, rank.call);
      rank.check_rows(round);
    };
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_ahead = world.rank() == turn;
      if (!is_ahead) rank.exchange.dispatch_async(of_first.in, rank.call);
      wait();
      world.barrier();
      if (is_ahead) {
        LateNet::hold_up(lag);
        rank.exchange.dispatch_async(of_first.in, rank.call);
        take(of_first);
        rank.exchange.dispatch_async(of_second.in, rank.call);
        wait();
        LateNet::hold_up({});
      }
      world.barrier();
      if (!is_ahead) {
        take(of_first);
        rank.exchange.dispatch_async(of_second.in, rank.call);
      }
      take(of_second);
      world.barrier();
    }
  });
  EXPECT_EQ(emulated::failure(), "");
  emulated::reset({});  // nothing that is still late arrives
}

}  // namespace
}  // namespace ferry::test
