// What `ferry verify` says when it is interrupted, and how backends are named.
#include "tool/commands/verify/verify_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace ferry::app {
namespace {

// A reference that a call gives for a temporary string would look dangling to compilers.
static_assert(std::is_same_v<decltype(backend_named), const Backend&(std::string_view)>);
static_assert(std::is_same_v<decltype(choose_backend), const Backend&(std::string_view, int)>);

TEST(InterruptedVerify, CountsTheCasesOfBackendsThatHaveNotBegun) {
  VerifyArguments asked;
  asked.quiet = true;
  const std::vector<std::string> names = {"worlds/one", "worlds/two", "worlds/three"};
  VerifyReport report(asked, names);
  testing::internal::CaptureStdout();
  report.expect(2);
  report.begin(backend_named("cpu"));
  report.start(names[0]);
  report.add(names[0], {CaseOutcome::Result::ok, "", 0});
  report.start(names[1]);
  report.interrupt();
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::HasSubstr("Interrupted in worlds/two: 1 of 6 cases were done."));
}

TEST(FailedVerify, CountsItsCases) {
  VerifyArguments asked;
  asked.json = true;
  const std::vector<std::string> names = {"worlds/one", "worlds/two"};
  VerifyReport report(asked, names);
  report.expect(1);
  report.begin(backend_named("cpu"));
  EXPECT_EQ(report.failure(), "");
  for (const char* failure : {"1 conformance case failed on cpu", "2 conformance cases failed on cpu"}) {
    report.add(names[0], {CaseOutcome::Result::failed, "", 0});
    EXPECT_EQ(report.failure(), failure);
  }
}

std::string text_of(std::initializer_list<CaseOutcome> outcomes) {
  VerifyArguments asked;
  asked.quiet = true;
  const std::vector<std::string> names(outcomes.size(), "worlds/one");
  VerifyReport report(asked, names);
  testing::internal::CaptureStdout();
  report.expect(1);
  report.begin(backend_named("cpu"));
  for (const CaseOutcome& each : outcomes) report.add("worlds/one", each);
  report.finish();
  return testing::internal::GetCapturedStdout();
}

TEST(Verify, SaysWhyMostCasesWereSkipped) {
  using enum CaseOutcome::Result;
  const std::string text = text_of({{ok, "", 0},
                                    {skipped, "a", 0},
                                    {skipped, "needs 3 ranks", 0},
                                    {skipped, "needs 3 ranks", 0},
                                    {skipped, "b", 0},
                                    {skipped, "c", 0}});
  EXPECT_THAT(text, testing::HasSubstr("1 ok, 5 skipped, 0 failed.\n  Most cases were skipped on cpu:\n"
                                       "    2 cases: needs 3 ranks\n    1 case: a\n    1 case: b\n"
                                       "    1 case: for other reasons\n"));
}

TEST(Verify, SaysHowManyRoundsCouldNotRun) {
  using enum CaseOutcome::Result;
  EXPECT_THAT(text_of({{ok, "", 0, 3}, {failed, "no", 0, 5}, {skipped, "a", 0, 7}, {ok, "", 0}}),
              testing::AllOf(testing::HasSubstr("Of the cases that are ok, 3 rounds could not run on cpu."),
                             testing::Not(testing::HasSubstr("Most cases"))));
}

}  // namespace
}  // namespace ferry::app
