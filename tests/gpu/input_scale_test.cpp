// An input scale that no format can encode by. It lies in device memory, so only the kernel can look at it, and the
// next call says what the kernel found.
#include <gmock/gmock.h>

#include <limits>

#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"

namespace ferry::test {
namespace {

using cuda::cuda_check;
using testing::AllOf;
using testing::HasSubstr;

TEST(GpuInputScale, OutOfBoundsIsFoundAndSaidOnce) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 1, .experts = 8, .top_k = 3, .max_tokens = 10, .hidden = 64};
  settings.options = conformance::options_for("nvfp4");
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    Exchange exchange(world, settings.shape, settings.options);
    const float bad[] = {0.0f, -2.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
    for (const float scale : bad) {
      const cuda::DeviceMemory memory(sizeof scale);
      cuda_check(cudaMemcpy(memory.data(), &scale, sizeof scale, cudaMemcpyHostToDevice), "cudaMemcpy");
      DeviceRound round(scenario, 0);
      round.in.input_scale = memory.as<float>();
      exchange.dispatch(round.in, round.out);
      cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      try {
        exchange.check();
        ADD_FAILURE() << scale << " was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("input_scale"), HasSubstr("greater than 0")));
      }
      exchange.check();
      DeviceRound good(scenario, 0);
      exchange.dispatch(good.in, good.out);
      exchange.combine(good.combine_in, good.combine_out);
      good.fetch();
      good.host.check_rows();
      good.host.check_tokens();
      exchange.check();
    }
  });
}

}  // namespace
}  // namespace ferry::test
