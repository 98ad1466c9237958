// Calls that follow a dispatch without a handle, where a graph with a dispatch of the same exchange was replayed since:
// the host saw no replay, so the device refuses them. And what stays allowed beside graphs. The emulated suite runs
// these tests, too. How memory is made: handles_test.cpp.
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>

#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 4;

Scenario scenario_of(std::uint64_t seed, Reduction reduction, RowOrder order = RowOrder::by_expert) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, 40, 288};
  settings.options = conformance::options_for("mxfp8", reduction);
  settings.row_orders = {order};
  settings.routing = "uniform";  // max_tokens on each rank, as a graph keeps its number
  settings.seed = seed;
  return conformance::make_scenario(settings);
}

// A rank with a round of its own calls and one that is captured.
struct Rank : HandleRank {
  Rank(World& of_rank, const Scenario& eager, const Scenario& captured)
      : HandleRank(of_rank, eager), mine(eager, of_rank.rank()), other(captured, of_rank.rank()), handle(exchange) {}

  std::unique_ptr<CapturedGraph> capture(bool dispatches, bool combines) {
    auto graph = std::make_unique<CapturedGraph>(stream.get(), [&] {
      if (dispatches) exchange.dispatch(other.in, other.out, call);
      if (combines) exchange.combine(other.combine_in, other.combine_out, call);
    });
    wait();
    world.barrier();
    return graph;
  }
  void dispatch(HandleRound& round) {
    round.reset(stream.get());
    exchange.dispatch(round.in, round.leaving(handle), call);
  }
  void launch(const CapturedGraph& graph) { graph.launch(stream.get()); }
  void combine(HandleRound& round) { exchange.combine(round.combine_in, round.combine_out, call); }

  HandleRound mine, other;
  Handle handle;
};

class GpuNewestDispatch : public GpuTest {};

void run(const Scenario& eager, const Scenario& captured, const std::function<void(Rank&)>& body) {
  run_cuda_ranks(
      kRanks, false,
      [&](World& world) {
        Rank rank(world, eager, captured);
        world.barrier();
        body(rank);
        world.barrier();
      },
      ranks_per_gpu(kRanks));
}

// `calls` ends the exchange on all ranks, long before a deadline, and every call after it says so, too.
void expect_end(const Scenario& eager, const Scenario& captured, const std::string& says,
                const std::function<void(Rank&)>& calls) {
  run(eager, captured, [&](Rank& rank) {
    const auto expect_refused = [&](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "rank " << rank.world.rank() << " noticed nothing, but " << says;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::out_of_order) << error.what();
        EXPECT_THAT(error.what(), AllOf(HasSubstr("a CUDA graph with a dispatch of this exchange was replayed between"),
                                        HasSubstr(says)));
      }
    };
    expect_refused([&] {
      calls(rank);
      rank.wait();
      rank.exchange.check();
    });
    rank.wait();
    rank.world.barrier();
    expect_refused([&] { rank.dispatch(rank.mine); });
  });
}

constexpr const char* kOfCombine = "Combine before the replay, or with a handle of that dispatch";
constexpr const char* kOfDispatch = "between dispatch_async and dispatch_wait";

void for_each_reduction(const std::function<void(const Scenario&, const Scenario&)>& test) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    test(scenario_of(2, reduction), scenario_of(4, reduction));
}

TEST_F(GpuNewestDispatch, OfAGraphIsNotCombinedInPlaceOfTheCallersOwn) {
  for_each_reduction([](const Scenario& eager, const Scenario& captured) {
    expect_end(eager, captured, kOfCombine, [](Rank& rank) {
      const auto graph = rank.capture(true, true);
      rank.dispatch(rank.mine);
      rank.launch(*graph);
      rank.combine(rank.mine);
    });
  });
}

TEST_F(GpuNewestDispatch, OfAGraphWithoutACombineIsNotCombined) {
  for_each_reduction([](const Scenario& eager, const Scenario& captured) {
    expect_end(eager, captured, kOfCombine, [](Rank& rank) {
      const auto graph = rank.capture(true, false);
      rank.dispatch(rank.mine);
      rank.combine(rank.mine);
      rank.dispatch(rank.mine);
      rank.launch(*graph);
      rank.combine(rank.mine);
    });
  });
}

TEST_F(GpuNewestDispatch, OfAGraphIsNotCombinedInHalves) {
  for_each_reduction([](const Scenario& eager, const Scenario& captured) {
    for (const bool between : {false, true})
      expect_end(eager, captured, kOfCombine, [&](Rank& rank) {
        const auto graph = rank.capture(true, true);
        rank.dispatch(rank.mine);
        if (!between) rank.launch(*graph);
        rank.exchange.combine_async(rank.mine.combine_in, rank.call);
        if (between) rank.launch(*graph);
        rank.exchange.combine_wait(rank.mine.combine_out, rank.call);
      });
  });
}

// Where rows are padded, another kernel receives.
TEST_F(GpuNewestDispatch, OfAGraphIsNotReceivedInPlaceOfTheCallersOwn) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded})
    expect_end(scenario_of(2, Reduction::by_rank, order), scenario_of(4, Reduction::by_rank, order), kOfDispatch,
               [](Rank& rank) {
                 const auto graph = rank.capture(true, true);
                 rank.mine.reset(rank.stream.get());
                 rank.exchange.dispatch_async(rank.mine.in, rank.call);
                 rank.launch(*graph);
                 rank.exchange.dispatch_wait(rank.mine.out, rank.call);
               });
}

// A combine that takes a number of its own, because a combine with a handle was captured, is refused alike.
TEST_F(GpuNewestDispatch, OfAGraphIsNotCombinedBesideCapturedHandles) {
  for_each_reduction([](const Scenario& eager, const Scenario& captured) {
    expect_end(eager, captured, kOfCombine, [](Rank& rank) {
      const CapturedGraph kept(rank.stream.get(), [&] {
        rank.exchange.combine(rank.mine.returned(rank.handle), rank.mine.combine_out, rank.call);
      });
      const auto graph = rank.capture(true, true);
      rank.dispatch(rank.mine);
      rank.launch(kept);
      rank.launch(*graph);
      rank.combine(rank.mine);
    });
  });
}

TEST_F(GpuNewestDispatch, IsCombinedBeforeAReplayOrAfterItWithAHandle) {
  for_each_reduction([](const Scenario& eager, const Scenario& captured) {
    run(eager, captured, [](Rank& rank) {
      const auto graph = rank.capture(true, true);
      for (int turn = 0; turn < 3; ++turn) {
        rank.dispatch(rank.mine);
        rank.combine(rank.mine);
        rank.check_tokens(rank.mine);
        rank.dispatch(rank.mine);
        rank.other.reset(rank.stream.get());
        rank.launch(*graph);
        rank.exchange.combine(rank.mine.returned(rank.handle), rank.mine.combine_out, rank.call);
        rank.check_tokens(rank.mine);
        rank.check_tokens(rank.other);
        rank.mine.reset(rank.stream.get());
        rank.launch(*graph);
        rank.exchange.dispatch_async(rank.mine.in, rank.call);
        rank.exchange.dispatch_wait(rank.mine.out, rank.call);
        rank.exchange.combine_async(rank.mine.combine_in, rank.call);
        rank.exchange.combine_wait(rank.mine.combine_out, rank.call);
        rank.check_tokens(rank.mine);
      }
    });
  });
}

// The host knows that what it captured runs later, so it asks for no dispatch of its own.
TEST_F(GpuNewestDispatch, OfAGraphIsCombinedByTheCallerOrByAnotherGraph) {
  for_each_reduction([](const Scenario& eager, const Scenario& captured) {
    run(eager, captured, [](Rank& rank) {
      const auto sends = rank.capture(true, false);
      rank.other.reset(rank.stream.get());
      rank.launch(*sends);
      rank.combine(rank.other);
      rank.check_tokens(rank.other);
      const auto also_sends = rank.capture(true, false);
      const auto returns = rank.capture(false, true);
      for (int turn = 0; turn < 3; ++turn) {
        rank.other.reset(rank.stream.get());
        rank.launch(turn % 2 == 0 ? *sends : *also_sends);
        rank.launch(*returns);
        rank.check_tokens(rank.other);
        rank.dispatch(rank.other);
        rank.launch(*returns);
        rank.check_tokens(rank.other);
        rank.dispatch(rank.mine);
      }
    });
  });
}

}  // namespace
}  // namespace ferry::test
