// One GoogleTest per case and backend. "Quick" is the subset for slow builds, "Full" the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "conformance/suite.h"
#include "support/wants_all.h"

namespace ferry::conformance {
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }
}  // namespace ferry::conformance

namespace {

using ferry::conformance::Case;

// Without sanitizers all rounds of a case run here, and few elsewhere.
void run_on_threads(const Case& each) {
  ferry::conformance::Target target = ferry::conformance::thread_target();
  target.all_combinations = ferry::test::wants_all();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  ferry::test::run_few_or_all(each, target);
#else
  each.run(target);
#endif
}

class Conformance : public testing::TestWithParam<Case> {};

TEST_P(Conformance, OnThreads) {
  try {
    run_on_threads(GetParam());
  } catch (const ferry::conformance::Skipped& skipped) {
    GTEST_SKIP() << skipped.what();
  } catch (const ferry::conformance::Failure& failure) {
    FAIL() << GetParam().what << "\n" << failure.what();
  }
}

std::vector<Case> cases(bool quick) {
  std::vector<Case> chosen;
  for (const Case& each : ferry::conformance::all_cases())
    if (each.quick == quick) chosen.push_back(each);
  return chosen;
}

std::string test_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Quick, Conformance, testing::ValuesIn(cases(true)), test_name);
INSTANTIATE_TEST_SUITE_P(Full, Conformance, testing::ValuesIn(cases(false)), test_name);

}  // namespace
