// I22 where one rank is slower than all others: each of its stores is seen, and answered, before it goes on. A round
// that has ended at another rank has its word, so the next call there finds another handle.
#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "emulated/device_rank.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

Scenario scenario_of(int ranks, std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = {ranks, 10, 3, 12, 96};
  settings.options = conformance::options_for("mxfp8");
  settings.routing = "uniform";
  settings.seed = seed;
  return conformance::make_scenario(settings);
}

class EmulatedCallWords : public EmulatedGpus {};

// Kernels of all ranks begin together, and no host looks between the calls.
void expect_noticed(World& world, int slow, std::uint64_t seed) {
  const Scenario a = scenario_of(world.size(), 2), b = scenario_of(world.size(), 3);
  HandleRank rank(world, a);
  HandleRound of_a(a, world.rank()), of_b(b, world.rank());
  const Handle first(rank.exchange), second(rank.exchange);
  rank.keep(of_a, first);
  rank.keep(of_b, second);
  world.barrier();
  if (world.rank() == 0) emulated::reset({.seed = seed, .hosts_are_idle = true, .slow_device = slow});
  world.barrier();
  {
    const emulated::Hold hold;
    world.barrier();
    const bool is_other = world.rank() == slow;
    rank.exchange.dispatch(is_other ? of_b.replayed(second) : of_a.replayed(first), is_other ? of_b.out : of_a.out,
                           rank.call);
    rank.exchange.dispatch(of_a.replayed(first), of_a.out, rank.call);
    world.barrier();
  }
  rank.wait();
  world.barrier();
  conformance::expect_error(world.rank(), "another handle", ErrorKind::invalid_argument,
                            {"a handle of another dispatch than rank"}, [&] { rank.exchange.check(); });
  world.barrier();
}

TEST_F(EmulatedCallWords, OfASlowRankAreThereWhenItsRoundHasEnded) {
  for (const int ranks : {2, 3})
    for (int slow = 0; slow < ranks; ++slow)
      for (std::uint64_t seed = 1; seed <= 4 && !HasFailure(); ++seed) {
        emulated::reset({});
        try {
          run_cuda_ranks(ranks, false, [&](World& world) { expect_noticed(world, slow, seed); });
        } catch (const std::exception& error) {
          FAIL() << ranks << " ranks, rank " << slow << " is slow, seed " << seed << ": " << error.what();
        }
      }
}

}  // namespace
}  // namespace ferry::test
