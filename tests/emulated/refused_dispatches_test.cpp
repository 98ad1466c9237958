// A dispatch that is refused for too many tokens of one rank, in memory of a GPU, at ranks whose hosts do not ask: what
// they have enqueued before they know does nothing, whichever calls it is, and then they go on. The conformance suite
// has the same in host memory, where hosts always know.
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <vector>

#include "emulated/device_rank.h"
#include "emulated/late_puts.h"
#include "emulated/late_world.h"
#include "exchange/sizes/sizes.h"
#include "gpu/captured_graph.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr int kRanks = 3;
constexpr int kOdd = 1;  // the rank that has too many

ScenarioSettings settings_of(RowOrder order, std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for("fp8_block128");
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  settings.options.deadline = std::chrono::seconds(20);
  settings.row_orders = {order};
  settings.routing = "uniform";
  settings.seed = seed;
  return settings;
}

// Its kernels are enqueued together, and run when the machine goes on.
void enqueue_held(const std::function<void()>& calls) {
  const emulated::Hold hold;
  calls();
}

struct RefusingRank : DeviceRank {
  RefusingRank(World& world, const Scenario& of) : DeviceRank(world, of), scenario(of) {}

  bool is_odd() const { return exchange.rank() == kOdd; }
  DispatchInput refused_input(const DeviceRound& round) const {
    DispatchInput in = round.in;
    if (is_odd())
      in.tokens.shape[0] = in.topk_ids.shape[0] = in.topk_weights.shape[0] = scenario.settings.shape.max_tokens + 1;
    return in;
  }
  void expect_refused(const char* what, const std::function<void()>& body) const {
    conformance::expect_error(exchange.rank(), what, ErrorKind::invalid_argument,
                              {"tokens of rank 1 has 10 rows", "max_tokens = 9", "another one may follow"}, body);
  }
  void wait() const { cuda::cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
  // A round that is compared byte for byte.
  void good_round(const Scenario& of, bool in_halves = false) {
    DeviceRound round(of, exchange.rank());
    if (in_halves) {
      exchange.dispatch_async(round.in, call);
      exchange.dispatch_wait(round.out, call);
      exchange.combine_async(round.combine_in, call);
      exchange.combine_wait(round.combine_out, call);
    } else {
      exchange.dispatch(round.in, round.out, call);
      exchange.combine(round.combine_in, round.combine_out, call);
    }
    check_rows(round);
    round.host.check_tokens();
  }
  void expect_dispatches(std::uint64_t count) const { EXPECT_EQ(exchange.stats().dispatches, count); }

  const Scenario& scenario;
};

struct Setting {
  const char* name;
  bool has_nodes = false;
  int slow_device = -1;
};

class EmulatedRefusals : public EmulatedGpus, public testing::WithParamInterface<Setting> {
 protected:
  void SetUp() override {
    EmulatedGpus::SetUp();
    emulated::reset({.slow_device = GetParam().slow_device});
  }
  static void run(const std::function<void(World&)>& body) {
    if (GetParam().has_nodes) return run_worlds(make_late_worlds(kRanks), body);
    run_cuda_ranks(kRanks, false, body);
  }
};

// A rank knows when it combines, or not before it has combined. The next call throws, and only that one. The rank with
// too many calls both halves, or the whole.
TEST_P(EmulatedRefusals, AreThrownByTheNextCall) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place}) {
    const Scenario scenario = conformance::make_scenario(settings_of(order, 3));
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
  const Scenario scenario = conformance::make_scenario(settings_of(RowOrder::by_expert, 4));
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

// A combine with a handle that was half done before is so still.
TEST_P(EmulatedRefusals, LeaveHalfACombineThatCameBefore) {
  const Scenario scenario = conformance::make_scenario(settings_of(RowOrder::by_expert, 6));
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
  const Scenario scenario = conformance::make_scenario(settings_of(RowOrder::by_expert, 7));
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
  const Scenario scenario = conformance::make_scenario(settings_of(RowOrder::by_expert, 8));
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

// A graph is replayed behind a dispatch that is refused, in the graph itself or ahead of it.
TEST_P(EmulatedRefusals, StopGraphs) {
  const Scenario scenario = conformance::make_scenario(settings_of(RowOrder::by_expert, 9));
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
      for (int i = 0; i < 3; ++i) graph->launch(rank.stream.get());
      rank.wait();
      rank.expect_refused("a check", [&] { rank.exchange.check(); });
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

std::string name_of(const testing::TestParamInfo<Setting>& setting) { return setting.param.name; }
INSTANTIATE_TEST_SUITE_P(, EmulatedRefusals,
                         testing::Values(Setting{"Stores"}, Setting{"StoresOneIsSlow", false, 0},
                                         Setting{"StoresTheOddOneIsSlow", false, kOdd}, Setting{"Nodes", true},
                                         Setting{"NodesOneIsSlow", true, 2}),
                         name_of);

// I1, I5: messages of a dispatch that is refused are long on their way from a rank that did not ask, and the others did
// not wait for them. Without the wait of forget_refused_kernel it sends the messages of the second next dispatch, whose
// slots are the same, before they have come.
class EmulatedRefusedMessages : public EmulatedGpus {};
TEST_F(EmulatedRefusedMessages, HaveLandedBeforeTheNextDispatch) {
  ScenarioSettings settings = settings_of(RowOrder::by_expert, 8);
  std::vector<Scenario> scenarios;
  for (const std::uint64_t seed : {8, 9, 10}) {
    settings.seed = seed;
    scenarios.push_back(conformance::make_scenario(settings));
  }
  const HeapMap map = make_heap_map(settings.shape, settings.options, 0, true);
  const Lag lag{map.begin(HeapMap::kMessages), map.begin(HeapMap::kTables), 1'000'000};
  emulated::reset({.late_stays = true});
  run_worlds(make_late_worlds(kRanks), [&](World& world) {
    RefusingRank rank(world, scenarios[0]);
    const bool is_ahead = world.rank() == 2;
    for (int turn = 0; turn < 4; ++turn) {
      DeviceRound round(scenarios[0], world.rank());
      const DispatchInput in = rank.refused_input(round);
      if (!is_ahead) rank.exchange.dispatch_async(in, rank.call);
      rank.wait();
      world.barrier();
      if (is_ahead) {
        LateNet::hold_up(lag);
        rank.exchange.dispatch(in, round.out, rank.call);
        rank.wait();
        LateNet::hold_up({});
      }
      world.barrier();
      rank.expect_refused("too many tokens", [&] {
        if (is_ahead) return rank.exchange.check();
        rank.exchange.wait_for_counts(rank.call);
      });
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

}  // namespace
}  // namespace ferry::test
