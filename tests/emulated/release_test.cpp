// Memory of emulated GPUs that an exchange gives back: addresses stay, so that graphs of before replay as they were.
#include "emulated/device_rank.h"
#include "gpu/captured_graph.h"
#include "support/emulated_gpu/memory.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 3;

conformance::Scenario scenario_of(Reduction reduction) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 6, 64};
  settings.options = conformance::options_for("mxfp8", reduction);
  return conformance::make_scenario(settings);
}

class EmulatedRelease : public EmulatedGpus {};

TEST_F(EmulatedRelease, LeavesCapturedGraphsGood) {
  const int before = emulated::unmaps_before_kernels_ended();
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const conformance::Scenario scenario = scenario_of(reduction);
    run_cuda_ranks(kRanks, false, [&](World& world) {
      DeviceRank rank(world, scenario);
      DeviceRound round(scenario, world.rank());
      const CapturedGraph graph(rank.stream.get(), [&] {
        rank.exchange.dispatch(round.in, round.out, rank.call);
        rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
      });
      const auto* slots = rank.exchange.arrival_slots().payload.as<std::byte>();
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (int replay = 0; replay <= repeat; ++replay) {
          round.reset(rank.stream.get());
          graph.launch(rank.stream.get());
        }
        if (repeat != 1) {  // else release waits for the graph
          rank.check_rows(round);
          round.host.check_tokens();
        }
        rank.exchange.release(rank.call);
        world.barrier();
        EXPECT_EQ(emulated::created_bytes(), 0u);
        EXPECT_EQ(emulated::unmaps_before_kernels_ended(), before);
        EXPECT_EQ(rank.exchange.memory_bytes(), 0u);
        world.barrier();
        rank.exchange.restore(rank.call);
        EXPECT_EQ(rank.exchange.arrival_slots().payload.as<std::byte>(), slots);
        EXPECT_GT(rank.exchange.memory_bytes(), 0u);
        if (repeat == 1) rank.check_rows(round);
      }
    });
  }
}

TEST_F(EmulatedRelease, IsRefusedInACapture) {
  const conformance::Scenario scenario = scenario_of(Reduction::by_rank);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    const CapturedGraph graph(rank.stream.get(), [&] {
      rank.exchange.dispatch(round.in, round.out, rank.call);
      for (const CallOptions& call : {rank.call, CallOptions{}})
        conformance::expect_error(world.rank(), "release", ErrorKind::out_of_order, {"captur"},
                                  [&] { rank.exchange.release(call); });
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
    });
    graph.launch(rank.stream.get());
    rank.check_rows(round);
    round.host.check_tokens();
    rank.exchange.release();
    const CapturedGraph other(rank.stream.get(), [&] {
      conformance::expect_error(world.rank(), "restore", ErrorKind::out_of_order, {"captur"},
                                [&] { rank.exchange.restore(rank.call); });
    });
    rank.exchange.restore();
  });
}

// An exchange that ends while its memory is given back.
TEST_F(EmulatedRelease, MayBeTheLastCall) {
  const conformance::Scenario scenario = scenario_of(Reduction::by_rank);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    const DeviceRound round(scenario, world.rank());
    rank.exchange.dispatch(round.in, round.out, rank.call);  // no combine follows
    rank.exchange.release(rank.call);
    world.barrier();
  });
  EXPECT_EQ(emulated::created_bytes(), 0u);
}

// The abort cannot be told by words in memory that is not there.
TEST_F(EmulatedRelease, LeavesRoomForAnAbort) {
  const conformance::Scenario scenario = scenario_of(Reduction::by_rank);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    rank.exchange.release(rank.call);
    world.barrier();
    if (world.rank() == 1) world.abort("it goes on without this exchange");
    for (int repeat = 0; repeat < 2; ++repeat)
      conformance::expect_error(world.rank(), "restore", ErrorKind::aborted, {"it goes on without this exchange"},
                                [&] { rank.exchange.restore(rank.call); });
  });
  EXPECT_EQ(emulated::created_bytes(), 0u);
}

}  // namespace
}  // namespace ferry::test
