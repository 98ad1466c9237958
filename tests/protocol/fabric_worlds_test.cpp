// The conformance suite, over fabrics that deliver late and in any order: what every backend must do does not depend on
// the wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "conformance/suite.h"
#include "support/fake_world.h"
#include "support/wants_all.h"

namespace ferry::test {
namespace {

using conformance::Case;
using Parameters = std::tuple<FakeKind, Case>;

conformance::Target target_of(FakeKind kind) {
  conformance::Target target;
  target.name = name_of(kind);
  target.run_ranks = [kind](int ranks, const std::function<void(World&)>& body) {
    run_fake_ranks(kind, ranks, 1, [&](FakeWorld& world) { body(world); });
  };
  target.make_worlds = [kind](int ranks) { return make_fake_worlds(kind, ranks, 1); };
  return target;
}

class OverLateFabrics : public testing::TestWithParam<Parameters> {};

TEST_P(OverLateFabrics, Conforms) {
  const auto& [kind, suite_case] = GetParam();
  try {
    run_few_or_all(suite_case, target_of(kind));
  } catch (const conformance::Skipped& skipped) {
    GTEST_SKIP() << skipped.what();
  } catch (const conformance::Failure& failure) {
    FAIL() << suite_case.what << "\n" << failure.what();
  }
}

std::vector<Case> quick_cases() {
  std::vector<Case> quick;
  for (const Case& each : conformance::all_cases())
    if (each.quick && each.name.find("memory_bytes") == std::string::npos)
      quick.push_back(each);  // send buffers besides
  return quick;
}

std::vector<FakeKind> late_kinds() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return {FakeKind::reordering};
#else
  return {FakeKind::reordering, FakeKind::reordering_nodes};
#endif
}

INSTANTIATE_TEST_SUITE_P(Quick, OverLateFabrics,
                         testing::Combine(testing::ValuesIn(late_kinds()), testing::ValuesIn(quick_cases())),
                         [](const auto& each) {
                           std::string name =
                               std::string(name_of(std::get<0>(each.param))) + "_" + std::get<1>(each.param).name;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace ferry::test
