// Hooks compiled into the kernels of emulated GPUs: rounds whose handles are kept, replayed and captured, in every
// order of rows, give the oracle's bytes. GPUs run the same rounds (gpu/hooks), and rounds without handles besides.
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "ferry/cuda/cuda_world.h"
#include "gpu/hooks/hook_rounds.h"
#include "gpu/hooks/hooked_calls.cuh"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 3;

HookCase hook_case(const char* name, RowOrder order, Reduction reduction = Reduction::by_rank, bool handles = true) {
  return {.name = name,
          .format = format_named("fp8_block128"),
          .make = make_calls<HookedUnderTest<Fp8Block128, AllHooks>, AllHooks>,
          .reduction = reduction,
          .weight = true,
          .epilogue = true,
          .tokens = 9,
          .hidden = 160,
          .order = order,
          .handles = handles};
}

class EmulatedHooks : public testing::TestWithParam<HookCase> {};

TEST_P(EmulatedHooks, GiveTheBytesOfArrays) {
  emulated::set_gpus({});
  emulated::reset({});
  const conformance::Scenario scenario = make_hook_scenario(GetParam(), kRanks);
  run_cuda_ranks(kRanks, false, [&](World& world) { run_hook_rounds(world, world.rank(), GetParam(), scenario); });
  EXPECT_EQ(emulated::failure(), "");
}

INSTANTIATE_TEST_SUITE_P(Handles, EmulatedHooks,
                         testing::Values(hook_case("by_expert", RowOrder::by_expert),
                                         hook_case("by_expert_exact", RowOrder::by_expert, Reduction::exact),
                                         hook_case("by_source", RowOrder::by_source),
                                         hook_case("padded", RowOrder::padded),
                                         hook_case("without_handles", RowOrder::by_expert, Reduction::exact, false)),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ferry::test
