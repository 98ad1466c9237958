// The conformance suite on the GPUs of this machine: the same cases, inputs and expected bytes as on the CPU, through
// worlds that copy the cases' host memory to the devices and back. Skipped, with the reason, where there is no GPU.
#include <gtest/gtest.h>

#include "conformance/suite.h"
#include "gpu/few_gpus.h"
#include "support/wants_all.h"

namespace ferry::test {
namespace {

conformance::Target cuda_target() {
  conformance::Target target;
  target.name = "cuda";
  target.all_combinations = test::wants_all();
  target.run_ranks = [](int ranks, const std::function<void(World&)>& body) {
    run_cuda_ranks(ranks, true, body, ranks_per_gpu(ranks));
  };
  target.make_worlds = [](int ranks) {
    if (ranks < 1 || ranks > kMaxGpuRanks) throw conformance::Skipped("a world of GPUs is made from a list of them");
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank / ranks_per_gpu(ranks));
    return make_staged_cuda_worlds(devices);
  };
  return target;
}

class OnGpus : public testing::TestWithParam<conformance::Case> {};

TEST_P(OnGpus, Conforms) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  try {
    GetParam().run(cuda_target());
  } catch (const conformance::Skipped& reason) {
    GTEST_SKIP() << reason.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Conformance, OnGpus, testing::ValuesIn(conformance::all_cases()), [](const auto& each) {
  std::string name = each.param.name;
  for (char& c : name) c = c == '/' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace ferry::test
