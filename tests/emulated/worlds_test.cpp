// The conformance suite on emulated GPUs: src/cuda and the text of the kernels, run by threads that are fibers of this
// process, with the same cases, inputs and expected bytes as on CPUs and on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "conformance/suite.h"
#include "emulated/late_world.h"
#include "ferry/cuda/cuda_world.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"
#include "support/wants_all.h"

namespace ferry::test {
namespace {

conformance::Target emulated_target() {
  conformance::Target target;
  target.name = "emulated cuda";
  target.all_combinations = wants_all();
  target.run_ranks = [](int ranks, const std::function<void(World&)>& body) { run_cuda_ranks(ranks, true, body); };
  target.make_worlds = [](int ranks) {
    if (ranks < 1 || ranks > kMaxGpuRanks) throw conformance::Skipped("a world of GPUs is made from a list of them");
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank);
    return make_staged_cuda_worlds(devices);
  };
  return target;
}

// Ranks at an odd distance are of other nodes, reached by puts that arrive late.
conformance::Target target_of_nodes() {
  conformance::Target target;
  target.name = "emulated nodes";
  target.has_remote_ranks = [](const World& world) { return world.has_remote_ranks(); };
  target.run_ranks = [](int ranks, const std::function<void(World&)>& body) {
    run_worlds(make_late_worlds(ranks, true), body);
  };
  target.make_worlds = [](int ranks) { return make_late_worlds(ranks, true); };
  return target;
}

void run_on(const conformance::Target& target, const conformance::Case& each) {
  emulated::set_gpus({});
  emulated::reset({});
  try {
    run_few_or_all(each, target);
  } catch (const conformance::Skipped& reason) {
    GTEST_SKIP() << reason.what();
  }
  EXPECT_EQ(emulated::failure(), "");
}

class OnEmulatedGpus : public testing::TestWithParam<conformance::Case> {};
TEST_P(OnEmulatedGpus, Conforms) { run_on(emulated_target(), GetParam()); }

class OnEmulatedNodes : public testing::TestWithParam<conformance::Case> {};
TEST_P(OnEmulatedNodes, Conforms) { run_on(target_of_nodes(), GetParam()); }

// A thread of a GPU takes some hundred times as long here. So these are cases of small shapes. What is left out says
// nothing about kernels, or the same as others with more tokens and ranks.
constexpr const char* kSmall[] = {"shapes/smallest",
                                  "shapes/one_rank",
                                  "shapes/top_32",
                                  "shapes/uneven_experts",
                                  "routings/",
                                  "calls/forms",
                                  "calls/abandoned",
                                  "calls/inputs_are_free",
                                  "options/shared_expert",
                                  "options/input_scale",
                                  "options/strides",
                                  "options/encoded_tokens",
                                  "options/alignment_128",
                                  "options/unreduced",
                                  "options/bias",
                                  "options/result_formats",
                                  "options/sums",
                                  "options/narrow_weights",
                                  "options/f16_sums",
                                  "options/dynamic_scales",
                                  "options/skip_a2a",
                                  "refusals/dispatch_input",
                                  "refusals/other_input_scale",
                                  "orders/padded_ragged",
                                  "orders/padded_some_none",
                                  "orders/padded_empty_ranks",
                                  "orders/padded_skip_a2a",
                                  "orders/padded_handles_1",
                                  "orders/by_source_ragged",
                                  "orders/by_source_some_none",
                                  "orders/by_source_empty_ranks",
                                  "orders/by_source_weights",
                                  "orders/by_source_skip_a2a",
                                  "orders/by_source_handles",
                                  "orders/in_place_ragged",
                                  "orders/in_place_some_none",
                                  "orders/in_place_empty_ranks",
                                  "orders/in_place_later",
                                  "orders/in_place_weights",
                                  "orders/in_place_skip_a2a",
                                  "orders/in_place_handles_1",
                                  "orders/strides",
                                  "orders/results",
                                  "orders/refused_",
                                  "handles/micro_batches",
                                  "handles/two_ranks",
                                  "handles/masked_",
                                  "handles/refused",
                                  "handles/short_sequence_7",
                                  "handles/short_moved",
                                  "handles/short_refused",
                                  "handles/of_different_dispatches",
                                  "reductions/",
                                  "release/",
                                  "shared_memory/",
                                  "faults/lost_before_dispatch",
                                  "faults/aborted_for_a_masked_rank",
                                  "faults/growing_mask",
                                  "outputs/formats",
                                  "outputs/options",
                                  "outputs/handles",
                                  "outputs/routings_by_expert",
                                  "outputs/without_by_",
                                  "outputs/without_padded",
                                  "outputs/without_beside_more_by_expert",
                                  "outputs/without_options",
                                  "outputs/without_handles",
                                  "outputs/waited",
                                  "outputs/refused",
                                  "weights/",
                                  "combinations/",
                                  "counts/",
                                  "bytes/few",
                                  "bytes/own_sizes",
                                  "bytes/handles_1",
                                  "bytes/refused",
                                  "formats/few_",
                                  "formats/aligned_handles_",
                                  "formats/handles_1",
                                  "formats/handles_padded",
                                  "formats/handles_by_source",
                                  "formats/handles_in_place",
                                  "formats/statistics",
                                  "formats/refused",
                                  "reports/statistics",
                                  "reports/waits",
                                  "reports/memory_bytes",
                                  "extremes/",
                                  "own/",
                                  "world/capabilities",
                                  "world/kinds",
                                  "sizes/routings_by_expert",
                                  "sizes/routings_by_source",
                                  "sizes/options",
                                  "sizes/handles",
                                  "sizes/overflow_by_source",
                                  "sizes/by_counts",
                                  "sizes/too_small",
                                  "sizes/nothing",
                                  "sizes/wrong_order",
                                  "sizes/worst_case",
                                  "sizes/too_many_tokens",
                                  "overflow/formats_by_source",
                                  "overflow/wide",
                                  "overflow/routings_by_expert",
                                  "overflow/handles",
                                  "overflow/mixed",
                                  "overflow/shared_expert",
                                  "overflow/told_once",
                                  "overflow/refused"};

// Those cases that run other kernels between nodes, or other halves of kernels.
constexpr const char* kBetweenNodes[] = {"calls/forms",
                                         "calls/abandoned",
                                         "options/skip_a2a",
                                         "options/narrow_weights",
                                         "options/dynamic_scales_refused",
                                         "refusals/other_input_scale",
                                         "weights/",
                                         "orders/padded_ragged",
                                         "orders/padded_handles_1",
                                         "orders/by_source_ragged",
                                         "orders/by_source_some_none",
                                         "orders/by_source_empty_ranks",
                                         "orders/by_source_handles_1",
                                         "orders/in_place_ragged",
                                         "orders/in_place_handles_1",
                                         "orders/refused_",
                                         "handles/micro_batches",
                                         "handles/two_ranks",
                                         "handles/masked_by_",
                                         "handles/masked_pair",
                                         "handles/masked_weights_by_expert",
                                         "handles/masked_overflow_by_expert",
                                         "handles/refused",
                                         "handles/of_different_dispatches",
                                         "bytes/few",
                                         "bytes/own_sizes",
                                         "reductions/one_handle",
                                         "reductions/by_source",
                                         "release/unsupported",
                                         "shared_memory/",
                                         "faults/growing_mask",
                                         "outputs/options",
                                         "outputs/handles",
                                         "outputs/without_options",
                                         "outputs/without_handles",
                                         "counts/",
                                         "formats/few_",
                                         "reports/memory_bytes",
                                         "reports/statistics_padded",
                                         "reports/statistics_by_source",
                                         "own/types",
                                         "world/capabilities",
                                         "world/kinds",
                                         "sizes/routings_by_source",
                                         "sizes/handles",
                                         "sizes/overflow_by_source",
                                         "sizes/by_counts",
                                         "sizes/too_small",
                                         "sizes/too_many_tokens",
                                         "overflow/routings_by_source",
                                         "overflow/wide",
                                         "overflow/routings_by_expert",
                                         "overflow/shared_expert",
                                         "overflow/handles"};

std::vector<conformance::Case> cases_of(std::span<const char* const> names) {
  std::vector<conformance::Case> chosen;
  for (const conformance::Case& each : conformance::all_cases())
    if (std::any_of(names.begin(), names.end(), [&](const char* name) { return each.name.starts_with(name); }))
      chosen.push_back(each);
  return chosen;
}

std::string name_of(const testing::TestParamInfo<conformance::Case>& each) {
  std::string name = each.param.name;
  for (char& c : name) c = c == '/' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Conformance, OnEmulatedGpus, testing::ValuesIn(cases_of(kSmall)), name_of);
INSTANTIATE_TEST_SUITE_P(Conformance, OnEmulatedNodes, testing::ValuesIn(cases_of(kBetweenNodes)), name_of);

}  // namespace
}  // namespace ferry::test
