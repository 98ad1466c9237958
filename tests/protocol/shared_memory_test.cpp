// Exchanges that share one memory, of which a rank aborts while it changes hands: every wait of the others ends by
// that, and none by its deadline.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "conformance/rounds/rank_round.h"
#include "ferry/exchange.h"

namespace ferry {
namespace {

using conformance::Form;
using conformance::Scenario;

constexpr int kRanks = 3;

TEST(SharedMemory, EndsByAnAbortWhereverItComes) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 6, 2, 5, 32};
  settings.options = conformance::options_for("mxfp8");
  const Scenario scenario = conformance::make_scenario(settings);
  for (int attempt = 0; attempt < 40; ++attempt) {
    const auto worlds = make_thread_worlds(kRanks);
    try {
      run_worlds(worlds, [&](World& world) {
        Exchange first(world, settings.shape, settings.options);
        Exchange second(first, settings.shape, settings.options);
        world.barrier();
        std::thread aborts([&] {
          if (world.rank() != 1) return;
          std::this_thread::sleep_for(std::chrono::microseconds(50 * attempt));
          world.abort("it has heard enough");
        });
        try {
          for (;;)
            for (Exchange* const each : {&first, &second}) {
              each->take_memory();
              conformance::run_round(*each, scenario, Form::split);
            }
        } catch (const Error& error) {
          aborts.join();
          EXPECT_EQ(error.kind(), ErrorKind::aborted) << error.what();
          throw;
        }
      });
      FAIL() << "nobody aborted";
    } catch (const Aborted& error) {
      EXPECT_NE(std::string(error.what()).find("it has heard enough"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ferry
