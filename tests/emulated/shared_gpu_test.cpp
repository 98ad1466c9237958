// Ranks of one process that share a GPU: calls that enqueue nothing need no stream. Calls that enqueue kernels must
// have one of their own.
#include <gtest/gtest.h>

#include "conformance/rounds/rank_round.h"
#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"
#include "gpu/stream.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 3;

conformance::Scenario scenario_of(const char* format, int hidden) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 6, hidden};
  settings.options = conformance::options_for(format);
  return conformance::make_scenario(settings);
}

TEST(EmulatedSharedGpu, NeedsNoStreamWhereMemoryChangesHands) {
  emulated::set_gpus({.count = 1, .multiprocessors = 12});
  emulated::reset({});
  const conformance::Scenario large = scenario_of("bf16", 128), small = scenario_of("mxfp8", 64);
  const auto body = [&](World& world) {
    Exchange first(world, large.settings.shape, large.settings.options);
    Exchange second(first, small.settings.shape, small.settings.options);
    first.take_memory();
    second.take_memory();
    const Stream stream(0);
    DeviceRound round(small, world.rank());
    second.dispatch(round.in, round.out, {.stream = stream.get()});
    second.combine(round.combine_in, round.combine_out, {.stream = stream.get()});
    round.fetch();
    second.check();
    round.host.check_rows();
    round.host.check_tokens();
    conformance::expect_error(world.rank(), "dispatch", ErrorKind::invalid_argument, {"stream", "share device 0"},
                              [&] { second.dispatch(round.in, round.out); });
  };
  run_cuda_ranks(kRanks, false, body, kRanks);
  emulated::set_gpus({});
  EXPECT_EQ(emulated::failure(), "");
}

}  // namespace
}  // namespace ferry::test
