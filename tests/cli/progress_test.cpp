// Progress says how far a long step is, though it is not done.
#include "tool/text/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
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

// Four steps of 10 s: what is left shrinks as time goes by, also within a step.
TEST(Progress, WhatIsLeftShrinks) {
  EXPECT_EQ(seconds_left(1, 4, 10, 0), 30.0);
  EXPECT_EQ(seconds_left(1, 4, 10, 8), 22.0);
  EXPECT_EQ(seconds_left(1, 4, 10, 15), 20.0) << "the step is late: it ends soon, and two follow";
  EXPECT_EQ(seconds_left(3, 4, 30, 9), 1.0);
  EXPECT_EQ(seconds_left(0, 4, 0, 9), std::nullopt);
  EXPECT_EQ(seconds_left(1, 4, 10, 21), std::nullopt) << "the step takes far longer than the one before";
  EXPECT_EQ(seconds_left(3, 4, 30, 11), std::nullopt) << "the last step is late";
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
