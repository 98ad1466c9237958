// What `ferry verify` says when it is interrupted.
#include "tool/commands/verify_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry::app {
namespace {

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

}  // namespace
}  // namespace ferry::app
