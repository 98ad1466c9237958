// Hooks inside kernels over NVSHMEM: the cases of tests/gpu/hooks, a process per GPU, on one logical node and on
// several; what is refused; and the examples. By hand, under any launcher, of as many ranks to a node as the number
// says:  mpirun -np 4 nvshmem_hook_tests --worker hooks:2
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "conformance/rounds/rank_round.h"
#include "ferry/cuda/cuda_world.h"
#include "gpu/hooks/hook_cases.h"
#include "gpu/nvshmem/nvshmem_processes.h"
#include "gpu/nvshmem/peer_calls.h"
#include "support/processes/workers.h"

namespace ferry::test {
namespace {

using conformance::expect_error;

const HookCase kPeerCase{"peer_kernels", format_named("bf16"), make_peer_bf16_with_weight, Reduction::by_rank, true,
                         false};

// Collective: runs a part on a world of its own, and rank 0 prints how it went. Whether it went well.
bool run_part(NvshmemProcesses& nvshmem, const char* name, const std::function<void(World&)>& body) {
  std::string failed;
  try {
    nvshmem.processes().target("nvshmem").run_ranks(nvshmem.size(), body);
  } catch (const std::exception& error) {
    failed = error.what();
  }
  if (nvshmem.rank() == 0) std::printf("%s %s %s\n", failed.empty() ? "ok     " : "FAILED ", name, failed.c_str());
  std::fflush(stdout);
  return failed.empty();
}

int run_cases(int ranks_per_node) {
  NvshmemOptions options;
  options.ranks_per_node = ranks_per_node;
  options.share_gpus = true;
  NvshmemProcesses nvshmem(options);
  std::vector<HookCase> cases = hook_cases();
  if (ranks_per_node >= nvshmem.size()) cases.push_back(kPeerCase);  // one node: they reach all ranks
  int failures = 0;
  for (const HookCase& each : cases) {
    const conformance::Scenario scenario = make_hook_scenario(each, nvshmem.size());
    const auto body = [&](World& world) { run_hook_rounds(world, nvshmem.device(), each, scenario); };
    failures += run_part(nvshmem, each.name, body) ? 0 : 1;
  }
  nvshmem.end();
  return failures == 0 ? 0 : 1;
}

// `make` must be refused on this rank.
void expect_refused(World& world, MakeHooked make, const std::vector<std::string>& words) {
  const Shape shape{world.size(), 2 * world.size(), 2, 4, 64};
  expect_error(world.rank(), words.front(), ErrorKind::unsupported, words,
               [&] { make(world, shape, conformance::options_for("bf16")); });
}

// Kernels that do not reach the other nodes, given by all ranks or by one, and worlds that take no kernels over
// NVSHMEM.
int run_refusals() {
  NvshmemOptions options;
  options.ranks_per_node = 1;
  options.share_gpus = true;
  NvshmemProcesses nvshmem(options);
  const HookCase& right = hook_cases().front();
  const conformance::Scenario scenario = make_hook_scenario(right, nvshmem.size());
  int failures = 0;
  const auto run = [&](const char* name, const std::function<void(World&)>& body) {
    failures += run_part(nvshmem, name, body) ? 0 : 1;
  };
  run("kernels of one node", [&](World& world) {
    expect_refused(world, make_peer_bf16_with_weight, {"compiled_nvshmem_exchange.cuh", "several"});
    run_hook_rounds(world, nvshmem.device(), right, scenario);  // the world goes on
  });
  run("kernels of one node on one rank", [&](World& world) {
    const bool is_wrong = world.rank() == world.size() - 1;
    expect_refused(world, is_wrong ? make_peer_bf16_with_weight : make_bf16_with_all,
                   {"rank " + std::to_string(world.size() - 1) + ":", "compiled_nvshmem_exchange.cuh"});
    run_hook_rounds(world, nvshmem.device(), right, scenario);
  });
  run("a world without NVSHMEM", [&](World&) {
    const int device = nvshmem.device();
    expect_refused(*make_cuda_worlds({&device, 1}).front(), make_bf16_with_all, {"make_nvshmem_world", "cuda"});
  });
  run("a world of threads", [&](World&) {
    expect_refused(*make_thread_worlds(1).front(), make_bf16_with_all, {"GPUs", "cpu"});
  });
  options.staged = true;
  run("a world of host memory", [&](World& world) {
    expect_refused(world, make_bf16_with_all, {"host memory", "kernels"});
  });
  nvshmem.end();
  return failures == 0 ? 0 : 1;
}

class NvshmemHooks : public testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
  static constexpr int kRanks = 4;
};

TEST_F(NvshmemHooks, GiveTheBytesOfArraysOnOneNode) { expect_well(run_workers(kRanks, "hooks:4")); }
TEST_F(NvshmemHooks, GiveTheBytesOfArraysOnNodesOfTwo) { expect_well(run_workers(kRanks, "hooks:2")); }
TEST_F(NvshmemHooks, GiveTheBytesOfArraysOnNodesOfOne) { expect_well(run_workers(kRanks, "hooks:1")); }
TEST_F(NvshmemHooks, AreRefusedWhereTheyDoNotReach) { expect_well(run_workers(kRanks, "refusals")); }

#ifdef FERRY_NVSHMEM_EXAMPLE
TEST_F(NvshmemHooks, OfTheExampleGiveWhatTheyShould) {  // which takes a GPU for each rank, as its users do
  const int ranks = std::min(num_cuda_devices(), kRanks);
  if (ranks < 2) GTEST_SKIP() << "needs 2 GPUs; " << ranks << " found";
  for (const int nodes : {1, ranks}) expect_well(run_processes(ranks, FERRY_NVSHMEM_EXAMPLE, {std::to_string(nodes)}));
}
#endif

}  // namespace

int work(const std::string& what) {
  try {
    if (what.starts_with("hooks:")) return run_cases(std::atoi(what.c_str() + 6));
    return run_refusals();
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", what.c_str(), error.what());
    return 1;
  }
}

}  // namespace ferry::test

int main(int count, char** arguments) { return ferry::test::run_main(count, arguments); }
