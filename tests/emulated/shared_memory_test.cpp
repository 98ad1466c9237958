// Emulated GPUs that reach each other by late puts: what an exchange has put has landed before another one has its
// memory.
#include "emulated/device_rank.h"
#include "emulated/late_puts.h"
#include "emulated/late_world.h"
#include "exchange/sizes/sizes.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 3;

class EmulatedSharedMemory : public EmulatedGpus {};

// A combine that chooses its reduction tells the other ranks, and none of them waits for that word.
TEST_F(EmulatedSharedMemory, IsTakenWhenAllPutsHaveLanded) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 6, 64};
  settings.options = conformance::options_for("mxfp8", Reduction::either);
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  const HeapMap map = make_heap_map(settings.shape, settings.options, 0, true);
  emulated::reset({.late_stays = true});
  run_worlds(make_late_worlds(kRanks), [&](World& world) {
    DeviceRank rank(world, scenario);
    Exchange other(rank.exchange, settings.shape, settings.options);
    LateNet& net = LateNet::of(rank.exchange.arrival_slots().payload.as<std::byte>());
    for (int repeat = 0; repeat < 3; ++repeat) {
      rank.exchange.take_memory(rank.call);
      if (world.rank() == 0)
        LateNet::hold_up({map.begin(HeapMap::kCombining), map.begin(HeapMap::kAborted), 1'000'000});
      world.barrier();
      DeviceRound round(scenario, world.rank());
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
      rank.check_rows(round);
      round.host.check_tokens();
      world.barrier();  // no kernel runs
      if (world.rank() == 0) LateNet::hold_up({});
      EXPECT_FALSE(net.has_landed());
      world.barrier();
      other.take_memory(rank.call);
      EXPECT_TRUE(net.has_landed());
      world.barrier();
    }
  });
  EXPECT_EQ(emulated::failure(), "");
  emulated::reset({});  // nothing that is still late arrives
}

// One rank's kernels run last of all that can run, and nobody waited for them.
TEST_F(EmulatedSharedMemory, IsTakenWhenAllKernelsHaveEnded) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 6, 64};
  settings.options = conformance::options_for("mxfp8");
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  for (int slow = 0; slow < kRanks; ++slow) {
    emulated::reset({.slow_device = slow});
    run_cuda_ranks(kRanks, false, [&](World& world) {
      DeviceRank rank(world, scenario);
      Exchange other(rank.exchange, settings.shape, settings.options);
      DeviceRound round(scenario, world.rank());
      for (int repeat = 0; repeat < 3; ++repeat)
        for (Exchange* const taken : {&rank.exchange, &other}) {
          taken->take_memory(rank.call);
          EXPECT_TRUE(emulated::is_device_idle(world.rank()));
          world.barrier();
          taken->dispatch(round.in, round.out, rank.call);
          taken->combine(round.combine_in, round.combine_out, rank.call);
        }
      rank.check_rows(round);
      round.host.check_tokens();
    });
    EXPECT_EQ(emulated::failure(), "");
  }
}

}  // namespace
}  // namespace ferry::test
