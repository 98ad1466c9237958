// Worlds of processes, one GPU each, or fewer GPUs that they share. Every test starts copies of this program as ranks
// (workers.h). By hand, under any launcher:  mpirun -np 4 gpu_process_tests --worker suite
#include <gmock/gmock.h>

#include <cstdlib>
#include <sstream>

#include "ferry/cuda/cuda_world.h"
#include "support/processes/lost_process.h"
#include "support/processes/workers.h"

namespace ferry::test {
namespace {

TEST(Processes, RunCasesOfTheirOwnRank) {
  const auto results = run_workers(4, "bootstrap:world/all_gather,world/missing_rank");  // those without an exchange
  expect_well(results);
  EXPECT_THAT(results[0].output, testing::HasSubstr("ok      world/all_gather \n"));
  EXPECT_THAT(results[0].output, testing::HasSubstr("ok      world/missing_rank"));
}

TEST(Processes, ReportWhatFailsOnAnyRank) {
  const auto results = run_workers(3, "bootstrap:reports/memory_bytes");  // this world makes no exchange
  for (const WorkerResult& result : results) EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(results[0].output, testing::HasSubstr("a world without exchanges"));
}

TEST(Processes, AreAwaitedUntilAllHaveEndedOrAreStopped) {
  expect_well(run_workers(3, "stop_alone", std::chrono::seconds(100)), kLostProcess);
}

class GpuProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
  static constexpr int kRanks = 4;
};

TEST_F(GpuProcesses, Conform) {
  const auto results = run_workers(kRanks, "suite", std::chrono::seconds(540));
  expect_well(results);
  std::fputs(results[0].output.c_str(), stdout);
}

// For compute-sanitizer, under which calls of one process wait for each other where ranks share a GPU: the cases that
// FERRY_TEST_CASES names, with commas between them. One job runs all cases: a process takes most of its time under the
// tool to load the kernels.
TEST_F(GpuProcesses, ConformInCases) {
  constexpr int kMostRanks = 5;  // of the cases of `./dev gpu-sanitize`
  const char* const names = std::getenv("FERRY_TEST_CASES");
  if (names == nullptr) GTEST_SKIP() << "FERRY_TEST_CASES names no case";
  const auto results = run_workers(kMostRanks, std::string("suite:") + names, std::chrono::seconds(900));
  expect_well(results);
  std::istringstream cases(names);
  for (std::string name; std::getline(cases, name, ',');)
    EXPECT_THAT(results[0].output, testing::HasSubstr("ok      " + name));
  std::fputs(results[0].output.c_str(), stdout);
}
TEST_F(GpuProcesses, RefuseOneGpuForTwoRanks) { expect_well(run_workers(2, "share")); }
TEST_F(GpuProcesses, RefuseADeviceThatIsNotThere) { expect_well(run_workers(1, "no_device")); }

class KilledGpuProcess : public GpuProcesses, public testing::WithParamInterface<const char*> {};

TEST_P(KilledGpuProcess, IsNamedByTheOthersWhichGoOn) {
  expect_well(run_workers(kRanks, std::string("kill:") + GetParam()), kLostProcess);
}

INSTANTIATE_TEST_SUITE_P(At, KilledGpuProcess,
                         testing::Values("before_set_up", "before_dispatch", "after_async", "before_combine"),
                         [](const auto& each) { return std::string(each.param); });

class StoppedGpuProcess : public GpuProcesses, public testing::WithParamInterface<const char*> {};

TEST_P(StoppedGpuProcess, IsNamedByTheOthersWhichGoOn) {
  expect_well(run_workers(kRanks, std::string("stop:") + GetParam()), kLostProcess);
}

INSTANTIATE_TEST_SUITE_P(At, StoppedGpuProcess, testing::Values("before_dispatch", "after_async", "before_combine"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace ferry::test

int main(int count, char** arguments) { return ferry::test::run_main(count, arguments); }
