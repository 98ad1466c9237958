// Ranks that give handles of different dispatches to one call (I22): all of them throw, and say whose handle was which.
// And that nothing else is taken for it. The emulated suite runs these tests, too. How memory is made:
// handles_test.cpp.
#include <gmock/gmock.h>

#include <functional>
#include <set>
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
using testing::AnyOf;
using testing::HasSubstr;

Scenario scenario_of(int ranks, std::uint64_t seed, Reduction reduction) {
  ScenarioSettings settings;
  settings.shape = {ranks, 10, 3, 12, 96};
  settings.options = conformance::options_for("mxfp8", reduction);
  settings.chosen = Reduction::exact;                    // where combines choose
  settings.options.deadline = std::chrono::seconds(60);  // that a test reaches it is a failure of its own
  settings.routing = seed % 2 == 0 ? "uniform" : "ragged";
  settings.seed = seed;
  return conformance::make_scenario(settings);
}

// A rank with a handle of each of two dispatches.
struct Rank : HandleRank {
  Rank(World& of_rank, const Scenario& a, const Scenario& b)
      : HandleRank(of_rank, a), of_a(a, of_rank.rank()), of_b(b, of_rank.rank()), first(exchange), second(exchange) {}

  void keep_both() {
    keep(of_a, first);
    keep(of_b, second);
    world.barrier();
  }
  // Calls without a look at what they did.
  void replay_one(bool of_first) {
    HandleRound& round = of_first ? of_a : of_b;
    exchange.dispatch(round.replayed(of_first ? first : second), round.out, call);
  }
  void replay_one_in_halves(bool of_first) {
    HandleRound& round = of_first ? of_a : of_b;
    exchange.dispatch_async(round.replayed(of_first ? first : second), call);
    exchange.dispatch_wait(round.out, call);
  }
  void combine_one(bool of_first) {
    HandleRound& round = of_first ? of_a : of_b;
    exchange.combine(round.returned(of_first ? first : second), round.combine_out, call);
  }
  void combine_one_in_halves(bool of_first) {
    HandleRound& round = of_first ? of_a : of_b;
    exchange.combine_async(round.returned(of_first ? first : second), call);
    exchange.combine_wait(round.combine_out, call);
  }

  HandleRound of_a, of_b;
  Handle first, second;
};

class GpuOtherHandles : public GpuTest {};

void run(const Scenario& a, const Scenario& b, const std::function<void(Rank&)>& body) {
  const int ranks = a.settings.shape.ranks;
  run_cuda_ranks(
      ranks, false,
      [&](World& world) {
        Rank rank(world, a, b);
        world.barrier();
        body(rank);
        world.barrier();
      },
      ranks_per_gpu(ranks));
}

// In `calls` rank 0 gives the other handle than the rest: `is_first` is true for it alone.
using Calls = std::function<void(Rank&, bool is_first)>;

// Every rank throws by its next call or check, and every call after it, too.
void expect_end(int ranks, Reduction reduction, const std::string& operation, const Calls& calls) {
  run(scenario_of(ranks, 2, reduction), scenario_of(ranks, 3, reduction), [&](Rank& rank) {
    rank.keep_both();
    std::string said;
    const auto is_refused = [&](const std::function<void()>& call) {
      try {
        call();
        return false;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
        said = error.what();
        return true;
      }
    };
    const bool at_once = is_refused([&] { calls(rank, rank.world.rank() == 0); });
    rank.wait();
    rank.world.barrier();
    EXPECT_TRUE(is_refused([&] { rank.exchange.check(); }) || at_once) << "rank " << rank.world.rank();
    EXPECT_THAT(said, AllOf(HasSubstr("rank " + std::to_string(rank.world.rank()) + ": rank "),
                            HasSubstr("gave " + operation + " a handle of another dispatch than rank "),
                            AnyOf(HasSubstr("rank 0 gave"), HasSubstr("than rank 0 did"))));
    EXPECT_TRUE(is_refused([&] { rank.exchange.dispatch(rank.of_a.in, rank.of_a.out, rank.call); }));
    rank.wait();
  });
}
void expect_end(const std::string& operation, const Calls& calls) {
  for (const int ranks : std::set{allowed_ranks(2), allowed_ranks(4)})
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact, Reduction::either})
      expect_end(ranks, reduction, operation, calls);
}

TEST_F(GpuOtherHandles, InReplaysAreNoticed) {
  expect_end("dispatch", [](Rank& rank, bool is_first) { rank.replay_one(is_first); });
}
TEST_F(GpuOtherHandles, InHalvesOfReplaysAreNoticed) {
  expect_end("dispatch", [](Rank& rank, bool is_first) { rank.replay_one_in_halves(is_first); });
}
TEST_F(GpuOtherHandles, InCombinesAreNoticed) {
  expect_end("combine", [](Rank& rank, bool is_first) { rank.combine_one(is_first); });
}
TEST_F(GpuOtherHandles, InHalvesOfCombinesAreNoticed) {
  expect_end("combine", [](Rank& rank, bool is_first) { rank.combine_one_in_halves(is_first); });
}

// The words of calls before are there.
TEST_F(GpuOtherHandles, AfterOtherCallsAreNoticed) {
  for (const bool replays : {false, true})
    expect_end(replays ? "dispatch" : "combine", [&](Rank& rank, bool is_first) {
      rank.replay_one(true);
      rank.combine_one(true);
      rank.combine_one(false);
      rank.exchange.dispatch(rank.of_b.in, rank.of_b.out, rank.call);
      rank.exchange.combine(rank.of_b.combine_in, rank.of_b.combine_out, rank.call);
      rank.replay_one(false);
      if (replays)
        rank.replay_one(is_first);
      else
        rank.combine_one(is_first);
    });
}

// A replay that no rank hangs in: the next call with a handle compares what was said of it.
TEST_F(GpuOtherHandles, AreNoticedByTheNextCallWithAHandle) {
  expect_end("dispatch", [](Rank& rank, bool is_first) {
    rank.replay_one(is_first);
    rank.combine_one(true);
    rank.wait();
    rank.exchange.dispatch(rank.of_a.in, rank.of_a.out, rank.call);  // the host polls what kernels found
    ADD_FAILURE() << "rank " << rank.world.rank() << " noticed nothing";
  });
}

TEST_F(GpuOtherHandles, InGraphsAreNoticed) {
  for (const bool replays : {false, true})
    expect_end(replays ? "dispatch" : "combine", [&](Rank& rank, bool is_first) {
      const CapturedGraph graph(rank.stream.get(), [&] {
        rank.replay_one(replays ? is_first : true);
        rank.combine_one(replays ? true : is_first);
      });
      rank.wait();
      rank.world.barrier();
      graph.launch(rank.stream.get());
    });
}

// Calls in an order that a seed draws, the same on all ranks, also in graphs: none ends the exchange.
TEST_F(GpuOtherHandles, AreNotTakenForHandlesOfOneDispatch) {
  constexpr int kRounds = 100;  // of each reduction
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    run(scenario_of(2, 2, reduction), scenario_of(2, 3, reduction), [&](Rank& rank) {
      const auto pair = [&](bool of_first) {
        rank.replay_one(of_first);
        rank.combine_one(of_first);
      };
      const CapturedGraph of_first(rank.stream.get(), [&] { pair(true); });
      const CapturedGraph of_second(rank.stream.get(), [&] { pair(false); });
      rank.wait();
      rank.world.barrier();
      rank.keep_both();
      std::uint32_t drawn = 12345;
      for (int round = 0; round < kRounds; ++round) {
        drawn = drawn * 1664525u + 1013904223u;
        const bool is_first = (drawn >> 20 & 1) != 0;
        switch (drawn >> 24 & 7) {
          case 0:
            rank.replay_one(is_first);
            break;
          case 1:
            rank.replay_one_in_halves(is_first);
            break;
          case 2:
            rank.combine_one(is_first);
            break;
          case 3:
            rank.combine_one_in_halves(is_first);
            break;
          case 4:
            (is_first ? of_first : of_second).launch(rank.stream.get());
            break;
          case 5:
            rank.exchange.dispatch(rank.of_b.in, rank.of_b.out, rank.call);
            rank.exchange.combine(rank.of_b.combine_in, rank.of_b.combine_out, rank.call);
            break;
          default:
            pair(is_first);
        }
        if (round % 20 == 0) rank.exchange.check();
      }
      rank.replay(rank.of_a, rank.first);
      rank.combine(rank.of_a, rank.first);
    });
}

}  // namespace
}  // namespace ferry::test
