// Where blocks are few, a result of one row with weight 1 is copied piece by piece through shared memory to its slot
// (row_copies.cuh).
#include <gtest/gtest.h>

#include <atomic>

#include "emulated/emulated_ranks.h"
#include "emulated/late_kernels.h"
#include "support/session.h"

namespace ferry::test {
namespace {

// Rows of a part of a piece, of whole pieces, of more pieces than a warp has stages, or lanes. Few tokens have several
// warps each; of many a warp has pieces of several rows on their way, and some blocks copy while others sum.
struct Size {
  int hidden;
  int tokens;
};
constexpr Size kSizes[] = {{32, 12},   {8224, 12}, {33'824, 12}, {1024, 48},
                           {2080, 48}, {8224, 48}, {32, 270},    {2080, 270}};

class CopiedRows : public testing::Test {
 protected:
  // Counts the combines that copy rows, in both ways to share the blocks out.
  void SetUp() override {
    change_params<cuda::CombineParams>([this](cuda::CombineParams& params) {
      const bool all_copy = params.roles.first_receiver == 0;
      (all_copy ? all_copied_ : some_copied_) += params.roles.copies_rows;
    });
  }
  void TearDown() override { change_params<cuda::CombineParams>({}); }

  void agree(Reduction reduction, const Size& size) {
    const auto seed = static_cast<std::uint64_t>(size.hidden + size.tokens);
    SessionSettings settings;
    settings.shape = {2, 6, 2, size.tokens, size.hidden};
    settings.options = conformance::options_for("bf16", reduction);
    settings.options.concurrent = 2;
    settings.num_rounds = 5;
    settings.routings = {"uniform", "ragged", "zipf"};
    if (reduction == Reduction::by_rank) {
      settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source};
      settings.row_orders = {RowOrder::by_source, RowOrder::by_source, RowOrder::by_expert};
    }
    const Session session = make_session(settings, seed);
    try {
      run_emulated(session, {.seed = seed}, {.multiprocessors = 8}, EmulatedReach::direct);
    } catch (const std::exception& error) {
      FAIL() << "hidden " << size.hidden << ", " << size.tokens << " tokens: " << error.what() << "\n"
             << session.description();
    }
  }

  std::atomic<int> all_copied_ = 0;
  std::atomic<int> some_copied_ = 0;
};

TEST_F(CopiedRows, BySource) {
  for (const Size& size : kSizes) agree(Reduction::by_rank, size);
  EXPECT_GT(all_copied_, 0);
  EXPECT_GT(some_copied_, 0);
}

TEST_F(CopiedRows, WhereEveryRowIsAResult) {
  for (const Size& size : kSizes) agree(Reduction::exact, size);
  EXPECT_GT(all_copied_, 0);
  EXPECT_GT(some_copied_, 0);
}

}  // namespace
}  // namespace ferry::test
