// Progress says how far a long step is, though it is not done.
#include "tool/text/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace ferry::app {
namespace {

using namespace std::chrono_literals;

TEST(Progress, SaysWhatAStepIsAtAfterTwoSeconds) {
  testing::internal::CaptureStderr();
  {
    Progress progress("work: steps", 4);
    std::this_thread::sleep_for(1s);
    progress.advance();
    Progress::doing("the second step");
    std::this_thread::sleep_for(1500ms);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::ContainsRegex(
                  "work: steps 1 of 4 \\(25 %\\), [0-9]+ s, about [0-9]+ s left; the second step, [0-9]+ s\n"));
}

// As where a rank is lost.
TEST(Progress, SaysNotWhatIsLeftWhereAStepTakesFarLongerThanOthers) {
  testing::internal::CaptureStderr();
  {
    Progress progress("work: steps", 4);
    progress.advance();
    std::this_thread::sleep_for(3s);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("work: steps 1 of 4"), testing::Not(testing::HasSubstr("left"))));
}

TEST(Progress, SaysNothingOfShortWorkAndBehindItsEnd) {
  testing::internal::CaptureStderr();
  {
    Progress progress("work: steps", 1);
    progress.advance();
  }
  Progress::doing("what no progress is there for");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace ferry::app
