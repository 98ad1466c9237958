// How many iterations `ferry bench` takes: as many as fit --seconds, though the first ones were not like the others.
#include <gtest/gtest.h>

#include "tool/bench/base/bench_case.h"
#include "tool/bench/mpi/bench_baseline.h"

namespace ferry::app {
namespace {

struct Took {
  int iterations;
  double seconds;
};

// A line whose iterations take what `time_of` says, beside a warm-up that tells nothing.
template <class TimeOf>
Took measure(const BenchEffort& effort, const TimeOf& time_of) {
  Took took{0, 0};
  while (const int next = next_iterations(effort, took.iterations, took.seconds))
    for (const int end = took.iterations + next; took.iterations < end; ++took.iterations)
      took.seconds += time_of(took.iterations);
  return took;
}

TEST(BenchEffort, IsKeptWhereIterationsAreAlike) {
  for (const double each : {1e-4, 1e-3, 1e-2, 0.15}) {
    const Took took = measure({0, 2.0}, [&](int) { return each; });
    EXPECT_NEAR(took.seconds, 2.0, 1.01 * each) << each;
  }
}

TEST(BenchEffort, IsKeptWhereTheFirstIterationsAreNotLikeTheOthers) {
  for (const double first : {1e-5, 20e-3}) {
    const Took took = measure({0, 2.0}, [&](int iteration) { return iteration < 12 ? first : 1e-3; });
    EXPECT_GT(took.seconds, 1.5) << first;
    EXPECT_LT(took.seconds, 2.5) << first;
  }
}

// On a busy machine one in ten iterations waits for a time slice.
TEST(BenchEffort, IsKeptWhereSomeIterationsAreHeldUp) {
  const Took took = measure({0, 0.5}, [](int iteration) { return iteration % 10 == 9 ? 8e-3 : 1e-4; });
  EXPECT_GT(took.seconds, 0.4);
  EXPECT_LT(took.seconds, 0.6);
}

TEST(BenchEffort, HasAFewestAndAMost) {
  EXPECT_EQ(measure({0, 0.5}, [](int) { return 1.0; }).iterations, kFewestIterations);
  EXPECT_EQ(measure({0, 600.0}, [](int) { return 1e-9; }).iterations, kMostIterations);
  EXPECT_EQ(measure({3, 0.5}, [](int) { return 1e-6; }).iterations, 3);
}

// An iteration of many ranks on few cores may take most of a second.
TEST(BenchEffort, OfTheBaselineHasADeadlineThatGrowsWithIt) {
  EXPECT_GE(baseline_deadline({0, 2.0}), 120);
  EXPECT_GE(baseline_deadline({0, 600.0}), 120 + 600);
  EXPECT_GE(baseline_deadline({1000, 2.0}), 120 + 0.9 * 1000);
  EXPECT_LT(baseline_deadline({10, 2.0}), 300);  // and one that hangs is found
  EXPECT_LT(baseline_deadline({1'000'000, 2.0}), 4000);
}

TEST(BenchEffort, IsExpectedFromWhatIsMeasured) {
  EXPECT_EQ(expected_iterations({0, 2.0}, 10, 0.1), 200);
  EXPECT_EQ(expected_iterations({0, 2.0}, 3, 0), kMostIterations);
  EXPECT_EQ(expected_iterations({7, 2.0}, 3, 0), 7);
}

}  // namespace
}  // namespace ferry::app
