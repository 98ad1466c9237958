// What a profiler sees of the host's calls: one range for each, with the rank.
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>  // the emulated one

#include <string>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "emulated/device_rank.h"

namespace ferry::test {
namespace {

using conformance::Form;
using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr int kNvtxRanks = 2;

Scenario nvtx_scenario() {
  ScenarioSettings settings;
  settings.shape = {kNvtxRanks, 6, 2, 9, 64};
  settings.options = conformance::options_for("bf16");
  return conformance::make_scenario(settings);
}

// The ranges of one round on each rank's thread.
std::vector<std::vector<emulated::HostRange>> ranges_of(Form form) {
  const Scenario scenario = nvtx_scenario();
  std::vector<std::vector<emulated::HostRange>> ranges(kNvtxRanks);
  run_cuda_ranks(kNvtxRanks, true, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    emulated::host_ranges.clear();
    conformance::run_round(exchange, scenario, form);
    ranges[static_cast<std::size_t>(world.rank())] = emulated::host_ranges;
    EXPECT_EQ(emulated::open_host_ranges, 0);
  });
  return ranges;
}

class EmulatedNvtx : public EmulatedGpus {};

TEST_F(EmulatedNvtx, NamesEachCallWithItsRank) {
  for (const auto& [form, names] :
       {std::pair{Form::one_call, std::vector<std::string>{"ferry dispatch", "ferry combine"}},
        std::pair{Form::split, std::vector<std::string>{"ferry dispatch: send", "ferry dispatch: receive",
                                                        "ferry combine: send", "ferry combine: sum"}}}) {
    const auto ranges = ranges_of(form);
    for (int rank = 0; rank < kNvtxRanks; ++rank) {
      std::vector<std::string> found;
      for (const emulated::HostRange& range : ranges[static_cast<std::size_t>(rank)]) {
        found.push_back(range.name);
        EXPECT_EQ(range.payload, rank);
        EXPECT_EQ(range.depth, 0);
      }
      EXPECT_EQ(found, names);
    }
  }
}

}  // namespace
}  // namespace ferry::test
