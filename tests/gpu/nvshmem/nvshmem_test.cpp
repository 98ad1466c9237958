// The conformance suite over NVSHMEM, a process per GPU, or fewer GPUs that they share, on one logical node and on
// several. Every test starts copies of this program as ranks. By hand, under any launcher:  mpirun -np 4 nvshmem_tests
// --worker suite:2:quick
#include <gmock/gmock.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "conformance/rounds/rank_round.h"
#include "ferry/cuda/cuda_world.h"
#include "gpu/nvshmem/nvshmem_processes.h"
#include "support/processes/lost_process.h"
#include "support/processes/workers.h"

namespace ferry::test {
namespace {

using conformance::expect_error;

// "<ranks of a node>[:<cases, as ProcessSuite::run_suite has them>]"
int run_suite(const std::string& what) {
  const std::size_t colon = what.find(':');
  NvshmemOptions options;
  options.ranks_per_node = std::atoi(what.c_str());
  options.staged = options.share_gpus = true;
  NvshmemProcesses nvshmem(options);
  conformance::Target suite = nvshmem.processes().target("nvshmem");
  suite.has_remote_ranks = [&](const World& world) { return options.ranks_per_node < world.size(); };
  const int code = nvshmem.processes().run_suite(suite, colon == std::string::npos ? "" : what.substr(colon + 1));
  nvshmem.end();
  return code;
}

std::unique_ptr<World> staged_world(int ranks_per_node) {
  NvshmemOptions options;
  options.ranks_per_node = ranks_per_node;
  options.heap_bytes = std::size_t{64} << 20;
  options.device = gpu_of(place_of_process().rank);
  options.staged = options.share_gpus = true;
  return make_nvshmem_world(options);
}

// A world as users make it, exchanges, and what is refused.
void make_a_world(int ranks_per_node) {
  const std::unique_ptr<World> world = staged_world(ranks_per_node);
  conformance::ScenarioSettings settings;
  settings.shape = {world->size(), 2 * world->size(), 2, 20, 128};
  settings.options = conformance::options_for("mxfp8");
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  for (int turn = 0; turn < 3; ++turn) {  // memory is given out again
    Exchange exchange(*world, settings.shape, settings.options);
    conformance::run_round(exchange, scenario, conformance::Form::split);
  }
  conformance::ScenarioSettings skips = settings;
  skips.options.skip_a2a = true;
  skips.routing = "uniform";
  const conformance::Scenario replicated = conformance::make_scenario(skips);
  Exchange alone(*world, skips.shape, skips.options);
  conformance::run_round(alone, replicated, conformance::Form::split);
  Shape large = settings.shape;
  large.max_tokens = 1 << 19;
  expect_error(world->rank(), "more than the heap holds", ErrorKind::system, {"heap_bytes"},
               [&] { Exchange(*world, large, settings.options); });
  Exchange exchange(*world, settings.shape, settings.options);
  conformance::run_round(exchange, scenario, conformance::Form::one_call);
}

// Before NVSHMEM starts: afterwards the process can still make a world, as it does here.
void share_a_gpu() {
  NvshmemOptions options;
  options.device = 0;
  options.heap_bytes = std::size_t{64} << 20;
  options.place.job = "refused";
  expect_error(-1, "two ranks on one GPU", ErrorKind::invalid_argument, {"ranks 0 and 1", "share_gpus"},
               [&] { make_nvshmem_world(options); });
  options.place.job = "shared";
  options.share_gpus = true;
  make_nvshmem_world(options);
}

// "<ranks of a node>:<when>". Whoever is left ends by itself.
void lose_one(const std::string& what, int signal) {
  lose_a_process(*staged_world(std::atoi(what.c_str())), what.substr(what.find(':') + 1), signal);
}

class Nvshmem : public testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
  static constexpr int kRanks = 4;
  static void run_well(const std::string& what, int ranks = kRanks) {
    const auto results = run_workers(ranks, what, std::chrono::seconds(560));
    expect_well(results);
    std::fputs(results[0].output.c_str(), stdout);
  }
};

TEST_F(Nvshmem, MakesAWorld) { run_well("world:0"); }
TEST_F(Nvshmem, RefusesOneGpuForTwoRanks) { run_well("share", 2); }
TEST_F(Nvshmem, MakesAWorldOfSeveralNodes) { run_well("world:1"); }

// Cases of what dispatch writes, and the others: a test has ten minutes.
constexpr const char* kOfRows = "orders/,outputs/,overflow/,sizes/";
class NvshmemSuite : public Nvshmem, public testing::WithParamInterface<int> {
 protected:
  std::string cases(const std::string& chosen) const { return "suite:" + std::to_string(GetParam()) + ":" + chosen; }
};

TEST_P(NvshmemSuite, ConformsInHandles) { run_well(cases("handles/")); }
TEST_P(NvshmemSuite, ConformsInRows) { run_well(cases(kOfRows)); }
TEST_P(NvshmemSuite, ConformsInAllElse) { run_well(cases(std::string("-handles/,") + kOfRows)); }

INSTANTIATE_TEST_SUITE_P(OnNodesOf, NvshmemSuite, testing::Values(4, 2, 1));

class KilledNvshmemProcess : public Nvshmem, public testing::WithParamInterface<const char*> {};

TEST_P(KilledNvshmemProcess, IsNamedByTheOthersWhichGoOn) {
  expect_well(run_workers(kRanks, std::string("kill:") + GetParam()), kLostProcess);
}

INSTANTIATE_TEST_SUITE_P(At, KilledNvshmemProcess,
                         testing::Values("4:before_set_up", "4:before_dispatch", "2:before_dispatch", "2:after_async",
                                         "2:before_combine", "1:before_combine"));

class StoppedNvshmemProcess : public Nvshmem, public testing::WithParamInterface<const char*> {};

TEST_P(StoppedNvshmemProcess, IsNamedByTheOthersWhichGoOn) {
  expect_well(run_workers(kRanks, std::string("stop:") + GetParam()), kLostProcess);
}

INSTANTIATE_TEST_SUITE_P(At, StoppedNvshmemProcess,
                         testing::Values("4:before_dispatch", "2:before_dispatch", "2:before_combine",
                                         "1:before_combine"));

}  // namespace

int work(const std::string& what) {
  try {
    if (what.starts_with("suite:")) return run_suite(what.substr(6));
    if (what == "share")
      share_a_gpu();
    else if (what.starts_with("kill:"))
      lose_one(what.substr(5), SIGKILL);
    else if (what.starts_with("stop:"))
      lose_one(what.substr(5), SIGSTOP);
    else
      make_a_world(std::atoi(what.substr(what.find(':') + 1).c_str()));
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", what.c_str(), error.what());
    return 1;
  }
}

}  // namespace ferry::test

int main(int count, char** arguments) { return ferry::test::run_main(count, arguments); }
