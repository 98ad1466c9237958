// WorkerPool: every worker runs once, errors come back, and the pool can be used again.
#include "cpu/fabric/worker_pool.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace ferry::cpu {
namespace {

TEST(WorkerPool, RunsEachWorkerOnceAndWaitsForAll) {
  for (const int workers : {1, 2, 5}) {
    WorkerPool pool(workers);
    EXPECT_EQ(pool.workers(), workers);
    std::vector<int> runs(static_cast<std::size_t>(workers), 0);
    for (int turn = 1; turn <= 50; ++turn) {
      pool.run([&](int worker) { ++runs[static_cast<std::size_t>(worker)]; });
      for (const int count : runs) ASSERT_EQ(count, turn);
    }
  }
}

TEST(WorkerPool, GivesBackAnErrorAfterAllHaveFinished) {
  for (const int workers : {1, 3}) {
    WorkerPool pool(workers);
    std::vector<int> runs(static_cast<std::size_t>(workers), 0);
    for (int thrower = 0; thrower < workers; ++thrower) {
      EXPECT_THROW(pool.run([&](int worker) {
        ++runs[static_cast<std::size_t>(worker)];
        if (worker == thrower) throw std::runtime_error("worker");
      }),
                   std::runtime_error);
      for (const int count : runs) EXPECT_EQ(count, thrower + 1);
    }
    EXPECT_NO_THROW(pool.run([](int) {}));
  }
}

}  // namespace
}  // namespace ferry::cpu
