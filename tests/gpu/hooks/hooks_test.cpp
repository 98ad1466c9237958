// Hooks inside the kernels: rows and sums are those that the oracle gives for the same values given as arrays.
#include <gmock/gmock.h>

#include <algorithm>

#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"
#include "gpu/hooks/hooked_calls.h"

namespace ferry::test {
namespace {

using conformance::Plan;
using conformance::PlanSettings;
using cuda::cuda_check;
using cuda::DeviceMemory;
using testing::AllOf;
using testing::HasSubstr;

using Make = std::unique_ptr<HookedCalls> (*)(World&, const Shape&, const ExchangeOptions&);

struct HookCase {
  const char* name;
  const char* format;
  Make make;
  Reduction reduction;
  bool weight;
  bool epilogue;
  bool shared;
};

PlanSettings settings_for(const HookCase& each, int ranks) {
  PlanSettings settings;
  settings.shape = {ranks, 3 * ranks + 1, 3, 37, 288};
  settings.options = conformance::options_for(each.format, each.reduction);
  settings.options.fused_shared_expert = each.shared;
  settings.routing = "ragged";
  settings.output_dtype = each.epilogue ? DType::f32 : DType::bf16;
  settings.input_scale = std::string(each.format) == "nvfp4" ? 37.5f : 1.0f;
  settings.seed = 77;
  return settings;
}

class GpuHooks : public testing::TestWithParam<HookCase> {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
};

// One rank's rounds. Sums that an epilogue adds up begin at zero.
void run_rounds(World& world, const HookCase& each, const Plan& plan) {
  cuda_check(cudaSetDevice(world.rank()), "cudaSetDevice");  // where the tensors of this thread are made
  const auto calls = each.make(world, plan.settings.shape, plan.settings.options);
  for (int turn = 0; turn < 4; ++turn) {
    DeviceRound round(plan, world.rank());
    DeviceMemory scale(sizeof(float));
    cuda_check(cudaMemcpy(scale.data(), &plan.settings.input_scale, sizeof(float), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    HookValues values;
    values.top_k = plan.settings.shape.top_k;
    values.hidden = plan.settings.shape.hidden;
    values.input_scale = reinterpret_cast<const float*>(scale.data());
    round.in.input_scale = nullptr;
    ConstTensor& weights = each.reduction == Reduction::by_rank ? round.in.topk_weights : round.combine_in.topk_weights;
    if (each.weight) {
      values.weights = static_cast<const float*>(weights.data);
      weights = {};
    }
    if (each.epilogue) {
      values.sums = static_cast<float*>(round.combine_out.tokens.data);
      const auto bytes = static_cast<std::size_t>(round.combine_out.tokens.elements()) * sizeof(float);
      cuda_check(cudaMemset(values.sums, 0, bytes), "cudaMemset");
      round.combine_out.tokens = {};
    }
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    world.barrier();
    HookValues at_dispatch = values;  // which calls no hook that is combine's: these would read null
    at_dispatch.sums = nullptr;
    if (each.reduction == Reduction::exact) at_dispatch.weights = nullptr;
    calls->dispatch(round.in, round.out, at_dispatch, turn % 2 == 1);
    calls->combine(round.combine_in, round.combine_out, values, turn % 2 == 1);
    round.fetch();
    world.barrier();
    round.host.check_rows();
    round.host.check_tokens();
  }
}

TEST_P(GpuHooks, GiveTheBytesOfArrays) {
  const int most = std::min(num_cuda_devices(), 4);
  for (int ranks = 1; ranks <= most; ranks += std::max(1, most - 1)) {
    const Plan plan = conformance::make_plan(settings_for(GetParam(), ranks));
    run_cuda_ranks(ranks, false, [&](World& world) { run_rounds(world, GetParam(), plan); });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Hooks, GpuHooks,
    testing::Values(HookCase{"all_by_rank", "nvfp4", make_nvfp4_with_all, Reduction::by_rank, true, true, false},
                    HookCase{"all_exact", "nvfp4", make_nvfp4_with_all, Reduction::exact, true, true, false},
                    HookCase{"all_with_shared", "bf16", make_bf16_with_all, Reduction::by_rank, true, true, true},
                    HookCase{"all_exact_bf16", "bf16", make_bf16_with_all, Reduction::exact, true, true, true},
                    HookCase{"epilogue", "mxfp8", make_mxfp8_with_epilogue, Reduction::by_rank, false, true, false},
                    HookCase{"epilogue_exact", "mxfp8", make_mxfp8_with_epilogue, Reduction::exact, false, true, false},
                    HookCase{"weight", "mxfp8", make_mxfp8_with_weight, Reduction::by_rank, true, false, false},
                    HookCase{"weight_exact", "mxfp8", make_mxfp8_with_weight, Reduction::exact, true, false, false}),
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
  const Plan plan =
      conformance::make_plan(settings_for({"", "mxfp8", nullptr, Reduction::by_rank, true, true, false}, 1));
  Exchange exchange(*worlds[0], plan.settings.shape, plan.settings.options);
  DeviceRound round(plan, 0);
  DispatchInput in = round.in;
  in.topk_weights = {};
  in.router_weight = [](void*, int, int) { return 1.0f; };
  EXPECT_THAT(refusal(ErrorKind::unsupported, [&] { exchange.dispatch(in, round.out); }),
              AllOf(HasSubstr("router_weight"), HasSubstr("HookedExchange")));
  exchange.dispatch(round.in, round.out);
  CombineOutput out;
  out.epilogue = [](void*, int, int, const float*, int) {};
  EXPECT_THAT(refusal(ErrorKind::unsupported, [&] { exchange.combine(round.combine_in, out); }),
              AllOf(HasSubstr("epilogue"), HasSubstr("HookedExchange")));
  exchange.combine(round.combine_in, round.combine_out);
  round.fetch();
  round.host.check_rows();
}

TEST(HookedExchange, RefusesAWorldOfThreads) {
  const auto worlds = make_thread_worlds(1);
  EXPECT_THAT(refusal(ErrorKind::unsupported,
                      [&] {
                        make_bf16_with_all(*worlds[0], {1, 2, 1, 4, 32}, ExchangeOptions{});
                      }),
              AllOf(HasSubstr("GPUs"), HasSubstr("cpu")));
}

TEST(HookedExchange, RefusesWhatIsGivenTwice) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  const int devices[] = {0};
  const auto staged = make_staged_cuda_worlds(devices);
  const Shape shape{1, 4, 3, 10, 64};
  EXPECT_THAT(refusal(ErrorKind::unsupported, [&] { make_bf16_with_all(*staged[0], shape, ExchangeOptions{}); }),
              HasSubstr("host memory"));

  const auto worlds = make_cuda_worlds(devices);
  PlanSettings settings;
  settings.shape = shape;
  settings.options = conformance::options_for("bf16");
  const Plan plan = conformance::make_plan(settings);
  const auto calls = make_bf16_with_all(*worlds[0], shape, settings.options);
  DeviceRound round(plan, 0);
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
