// Late weights that several blocks of a combine store.
#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "emulated/device_rank.h"
#include "emulated/emulated_ranks.h"

namespace ferry::test {
namespace {

using conformance::Scenario;

class EmulatedLateWeights : public EmulatedGpus {};

// I24: more weights than one block stores, so the word follows the last of several blocks. Each round has others.
TEST_F(EmulatedLateWeights, OfSeveralBlocksComeBeforeTheirWord) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 2, .experts = 9, .top_k = 8, .max_tokens = 500, .hidden = 32};
  settings.options = conformance::options_for("bf16");
  settings.options.late_weights = true;
  settings.weights_at = conformance::WeightsAt::combine;
  std::vector<Scenario> scenarios;
  for (settings.seed = 1; settings.seed <= 3; ++settings.seed)
    scenarios.push_back(conformance::make_scenario(settings));
  for (std::uint64_t order = 1; order <= 2; ++order) {
    emulated::set_gpus({.multiprocessors = 12});
    emulated::reset({.seed = order});
    run_cuda_ranks(settings.shape.ranks, true, [&](World& world) {
      Exchange exchange(world, settings.shape, settings.options);
      for (const Scenario& scenario : scenarios)
        conformance::run_round(exchange, scenario, conformance::Form::one_call);
    });
  }
}

}  // namespace
}  // namespace ferry::test
