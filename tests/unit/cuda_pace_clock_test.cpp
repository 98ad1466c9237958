// When a GPU's wait gives up: by the clock alone, however many turns it has had.
#include "ferry/detail/cuda/fabric/pace_clock.h"

#include <gtest/gtest.h>

namespace ferry::cuda {
namespace {

constexpr std::uint64_t kStart = 5'000'000'000;

TEST(PaceClock, LooksNowAndThen) {
  PaceClock clock(1000);
  int looks = 0;
  for (int turn = 0; turn < 640; ++turn) looks += clock.is_time_to_look() ? 1 : 0;
  EXPECT_EQ(looks, 10);
}

TEST(PaceClock, ExpiresOnceTheDeadlineHasPassedSinceTheFirstLook) {
  PaceClock clock(1000);
  EXPECT_FALSE(clock.has_looked());
  EXPECT_FALSE(clock.has_expired(kStart));
  EXPECT_TRUE(clock.has_looked());
  EXPECT_FALSE(clock.has_expired(kStart + 999));
  EXPECT_TRUE(clock.has_expired(kStart + 1000));
  EXPECT_EQ(clock.waited_ns(kStart + 1200), 1200u);
}

// A counter of 32 bits comes back to where it was at the first look.
TEST(PaceClock, NeverStartsAgain) {
  PaceClock clock(1000);
  EXPECT_FALSE(clock.has_expired(kStart));
  for (std::uint64_t turn = 0; turn <= (std::uint64_t{1} << 32); ++turn) {
    if (clock.is_time_to_look() && clock.turns() <= 64) {
      EXPECT_FALSE(clock.has_expired(kStart + 1)) << turn;
    }
  }
  EXPECT_TRUE(clock.has_expired(kStart + 1000));
}

}  // namespace
}  // namespace ferry::cuda
