// Which kernels of a program a world of GPUs takes: those over a fabric that reaches its ranks.
#include <gtest/gtest.h>

#include <string>

#include "conformance/rounds/rank_round.h"
#include "ferry/cuda/cuda_world.h"
#include "ferry/detail/cuda/launch/compiled_access.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {
namespace {

constexpr Shape kShape{.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 4, .hidden = 64};

TEST(KernelsOfTheProgram, AreTakenByTheNameOfTheirFabric) {
  emulated::set_gpus({});
  emulated::reset({});
  const std::string direct = cuda::direct_launchers().fabric;  // the same name at another address
  cuda::Launchers here = cuda::direct_launchers();
  here.fabric = direct.c_str();
  cuda::Launchers elsewhere = cuda::direct_launchers();
  elsewhere.fabric = "pigeon";
  run_cuda_ranks(kShape.ranks, false, [&](World& world) {
    EXPECT_TRUE(world.capabilities().gpus);
    conformance::expect_error(world.rank(), "kernels of another transport", ErrorKind::unsupported,
                              {"rank 0:", "fabric pigeon", "make_pigeon_world", "this one is cuda"},
                              [&] { cuda::CompiledAccess::make(world, kShape, {}, elsewhere); });
    const Exchange exchange = cuda::CompiledAccess::make(world, kShape, {}, here);
    EXPECT_EQ(exchange.rank(), world.rank());
  });
  EXPECT_EQ(emulated::failure(), "");
}

}  // namespace
}  // namespace ferry::test
