// Weights that go home between nodes by puts that come late. The conformance suite has the values in every form.
#include <gtest/gtest.h>

#include <memory>

#include "conformance/rounds/rank_round.h"
#include "emulated/emulated_ranks.h"
#include "emulated/late_puts.h"
#include "emulated/late_world.h"
#include "exchange/sizes/sizes.h"

namespace ferry::test {
namespace {

class ReturnedWeightsOfNodes : public testing::TestWithParam<Reduction> {
 protected:
  void TearDown() override { LateNet::hold_up({}); }
};

// I25: a result's signal says that the weights are home, too: they have landed before it leaves, however late their
// puts come.
TEST_P(ReturnedWeightsOfNodes, AreHomeBeforeTheirResultsBetweenNodes) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 9, .hidden = 96};
  settings.options = conformance::options_for("bf16", GetParam());
  settings.options.returns_weights = true;
  const HeapMap map = make_heap_map(settings.shape, settings.options, 0, true);
  LateNet::hold_up({map.begin(HeapMap::kReturned), map.begin(HeapMap::kReturnedArrived), 20'000});
  std::vector<conformance::Scenario> scenarios;
  for (const std::uint64_t seed : {61, 62, 63, 64}) {
    settings.seed = seed;
    scenarios.push_back(conformance::make_scenario(settings));
  }
  emulated::reset({.seed = 7});
  run_worlds(make_late_worlds(settings.shape.ranks, true), [&](World& world) {
    Exchange exchange(world, settings.shape, settings.options);
    for (const conformance::Scenario& scenario : scenarios)
      conformance::run_round(exchange, scenario, conformance::Form::one_call);
  });
}

INSTANTIATE_TEST_SUITE_P(Reductions, ReturnedWeightsOfNodes, testing::Values(Reduction::by_rank, Reduction::exact),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace ferry::test
