// Hooks inside the kernels: rows and sums are those that the oracle gives for the same values given as arrays.
#include <gmock/gmock.h>

#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/hooks/hook_cases.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using testing::AllOf;
using testing::HasSubstr;

class GpuHooks : public testing::TestWithParam<HookCase> {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
};

TEST_P(GpuHooks, GiveTheBytesOfArrays) {
  for (const int ranks : {1, 4}) {
    const Scenario scenario = make_hook_scenario(GetParam(), ranks);
    const int of_each = ranks_per_gpu(ranks);
    const auto body = [&](World& world) { run_hook_rounds(world, world.rank() / of_each, GetParam(), scenario); };
    run_cuda_ranks(ranks, false, body, of_each);
  }
}

INSTANTIATE_TEST_SUITE_P(Hooks, GpuHooks, testing::ValuesIn(hook_cases()),
                         [](const auto& each) { return std::string(each.param.name); });

std::string refusal(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(GpuHookPointers, AreRefused) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  const int devices[] = {0};
  const auto worlds = make_cuda_worlds(devices);
  const Scenario scenario = make_hook_scenario({"", format_named("mxfp8"), nullptr, Reduction::by_rank, true, true}, 1);
  Exchange exchange(*worlds[0], scenario.settings.shape, scenario.settings.options);
  DeviceRound round(scenario, 0);
  DispatchInput in = round.in;
  in.topk_weights = {};
  in.router_weight = [](void*, int, int) { return 1.0f; };
  EXPECT_THAT(refusal(ErrorKind::unsupported, [&] { exchange.dispatch(in, round.out); }),
              AllOf(HasSubstr("router_weight"), HasSubstr("CompiledExchange")));
  exchange.dispatch(round.in, round.out);
  CombineOutput out;
  out.epilogue = [](void*, int, int, const float*, int) {};
  EXPECT_THAT(refusal(ErrorKind::unsupported, [&] { exchange.combine(round.combine_in, out); }),
              AllOf(HasSubstr("epilogue"), HasSubstr("CompiledExchange")));
  exchange.combine(round.combine_in, round.combine_out);
  round.fetch();
  round.host.check_rows();
}

TEST(CompiledExchange, RefusesAWorldOfThreads) {
  const auto worlds = make_thread_worlds(1);
  EXPECT_THAT(refusal(ErrorKind::unsupported,
                      [&] {
                        make_bf16_with_all(*worlds[0],
                                           {.ranks = 1, .experts = 2, .top_k = 1, .max_tokens = 4, .hidden = 32},
                                           ExchangeOptions{});
                      }),
              AllOf(HasSubstr("GPUs"), HasSubstr("cpu")));
}

TEST(CompiledExchange, RefusesWhatIsGivenTwice) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  const int devices[] = {0};
  const auto staged = make_staged_cuda_worlds(devices);
  const Shape shape{.ranks = 1, .experts = 4, .top_k = 3, .max_tokens = 10, .hidden = 64};
  EXPECT_THAT(refusal(ErrorKind::unsupported, [&] { make_bf16_with_all(*staged[0], shape, ExchangeOptions{}); }),
              HasSubstr("host memory"));

  const auto worlds = make_cuda_worlds(devices);
  ScenarioSettings settings;
  settings.shape = shape;
  settings.options = conformance::options_for("bf16");
  const Scenario scenario = conformance::make_scenario(settings);
  const auto calls = make_bf16_with_all(*worlds[0], shape, settings.options);
  DeviceRound round(scenario, 0);
  const auto refused = [&] {
    return refusal(ErrorKind::invalid_argument, [&] { calls->dispatch(round.in, round.out, {}, false); });
  };
  EXPECT_THAT(refused(), AllOf(HasSubstr("rank 0"), HasSubstr("topk_weights"), HasSubstr("router_weight")));
  round.in.input_scale = static_cast<const float*>(round.in.topk_weights.data);
  round.in.topk_weights = {};
  EXPECT_THAT(refused(), HasSubstr("input_scale"));
  round.in.input_scale = nullptr;
  round.in.router_weight = [](void*, int, int) { return 1.0f; };
  EXPECT_THAT(refused(), AllOf(HasSubstr("router_weight"), HasSubstr("pointer")));
  round.fetch();
  round.host.check_untouched();
}

}  // namespace
}  // namespace ferry::test
