// The log of FERRY_DEBUG on emulated GPUs: which kernels fit, and what was launched, by rank.
#include "base/debug_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "conformance/suite.h"
#include "ferry/cuda/cuda_world.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {
namespace {

// The variables are read once in a process, so this test works only where it is the first of its process, as under
// ctest.
TEST(EmulatedDebugLog, NamesKernelsAndLaunchesOfEveryRank) {
  const std::filesystem::path file = testing::TempDir() + "ferry_debug_log_of_emulated_gpus";
  std::filesystem::remove(file);
  setenv("FERRY_DEBUG", "trace", 1);
  setenv("FERRY_DEBUG_FILE", file.c_str(), 1);
  if (!debug_logs(DebugLevel::trace)) GTEST_SKIP() << "another test of this process came first";
  emulated::set_gpus({});
  emulated::reset({});
  conformance::Target target;
  target.name = "emulated cuda";
  target.run_ranks = [](int ranks, const std::function<void(World&)>& body) { run_cuda_ranks(ranks, true, body); };
  for (const conformance::Case& each : conformance::all_cases())
    if (each.name == "shapes/uneven_experts") each.run(target);
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  for (int rank = 0; rank < 3; ++rank)
    for (const char* what : {"info: world of 3 GPUs of this process: device ", "info: exchange on cuda (3 ranks)",
                             "info: kernels on device ", "trace: dispatch kernel, ", "trace: combine kernel, "})
      EXPECT_THAT(text.str(), testing::HasSubstr("rank " + std::to_string(rank) + " " + what));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace ferry::test
