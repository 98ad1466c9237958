// Worlds of processes on CPUs. Every test starts copies of this program as ranks (workers.h). By hand, under any
// launcher:  mpirun -np 4 process_tests --worker suite
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "support/processes/lost_process.h"
#include "support/processes/workers.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 4;

void expect_to_conform(int ranks, const char* suite) {
  const auto results = run_workers(ranks, suite, std::chrono::seconds(840));
  expect_well(results);
  std::fputs(results[0].output.c_str(), stdout);
}

TEST(Processes, Conform) { expect_to_conform(kRanks, FERRY_PROCESS_SUITE); }
TEST(Processes, ConformAsTwo) { expect_to_conform(2, "suite:quick"); }

// The worker gives a function of its own that gathers.
TEST(Processes, MeetByAFunctionOfTheCallers) { expect_well(run_workers(3, "all_gather")); }

TEST(Processes, SendBytes) { expect_well(run_workers(3, "bytes")); }

class KilledProcess : public testing::TestWithParam<const char*> {};

TEST_P(KilledProcess, IsNamedByTheOthersWhichGoOn) {
  expect_well(run_workers(kRanks, std::string("kill:") + GetParam()), kLostProcess);
}

INSTANTIATE_TEST_SUITE_P(At, KilledProcess,
                         testing::Values("before_set_up", "before_dispatch", "after_async", "before_combine"),
                         [](const auto& each) { return std::string(each.param); });

class StoppedProcess : public testing::TestWithParam<const char*> {};

TEST_P(StoppedProcess, IsNamedByTheOthersWhichGoOn) {
  expect_well(run_workers(kRanks, std::string("stop:") + GetParam()), kLostProcess);
}

INSTANTIATE_TEST_SUITE_P(At, StoppedProcess, testing::Values("before_dispatch", "after_async", "before_combine"),
                         [](const auto& each) { return std::string(each.param); });

// The deadline is an hour.
TEST(Processes, ThatEndEndTheWaitsForThemAtOnce) { expect_well(run_workers(kRanks, "ended"), kLostProcess); }

// Who waits for a rank that waits for the lost one names the lost one, too.
TEST(Processes, NameTheLostOneWhereverTheyWait) {
  for (const std::string last : {"at_barrier", "in_dispatch"})
    expect_well(run_workers(kRanks, "stop_elsewhere:" + last), kLostProcess);
}

TEST(Processes, ThatAbortSayWhyToTheOthers) { expect_well(run_workers(kRanks, "abort")); }

std::set<std::string> shared_files() {
  std::set<std::string> files;
  for (const auto& each : std::filesystem::directory_iterator("/dev/shm")) files.insert(each.path().filename());
  return files;
}

TEST(Processes, LeaveNoFileWhereTheyAreKilled) {
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "this system has no /dev/shm";
  const auto before = shared_files();
  const auto results = run_workers(kRanks, "kill_all");
  for (const WorkerResult& each : results) EXPECT_EQ(each.signal, SIGKILL) << text_of(results);
  for (const std::string& file : shared_files())
    EXPECT_TRUE(before.contains(file) || !file.starts_with("ferry")) << file;
}

}  // namespace
}  // namespace ferry::test

int main(int count, char** arguments) { return ferry::test::run_main(count, arguments); }
