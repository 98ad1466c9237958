// make_plan: the exchange as the phases of one rank see it.
#include "exchange/sizes/plan.h"

#include <gtest/gtest.h>

#include "exchange/sizes/sizes.h"

namespace ferry {
namespace {

constexpr Shape kShape{.ranks = 3,
                       .experts = 11,
                       .top_k = 4,
                       .max_tokens = 20,
                       .hidden = 96};  // ranks 0 and 1 own 4 experts, rank 2 owns 3

Plan plan_for(const ExchangeOptions& options, int rank) {
  return make_plan(kShape, options, make_heap_map(kShape, options, rank, false), rank);
}

TEST(MakePlan, TakesTheWholeWorld) {
  ExchangeOptions options;
  options.reduction = Reduction::exact;
  options.format = format_named("fp8_block128");
  const Plan plan = plan_for(options, 2);
  EXPECT_EQ(plan.rank, 2);
  EXPECT_EQ(plan.shape.ranks, 3);
  EXPECT_EQ(plan.shape.experts, 11);
  EXPECT_EQ(plan.first_id, 0);
  EXPECT_TRUE(plan.exact);
  EXPECT_EQ(plan.alignment, 4);  // the format's
  EXPECT_EQ(plan.local_experts(), 3);
  EXPECT_EQ(plan.groups(), 3);
  EXPECT_EQ(plan.masked, nullptr);
}

TEST(MakePlan, IsOneRankWithItsOwnExpertsWhereNothingIsSent) {
  ExchangeOptions options;
  options.skip_a2a = true;
  options.fused_shared_expert = true;
  options.expert_alignment = 16;
  const Plan plan = plan_for(options, 1);
  EXPECT_EQ(plan.rank, 0);
  EXPECT_EQ(plan.shape.ranks, 1);
  EXPECT_EQ(plan.shape.experts, 4);
  EXPECT_EQ(plan.first_id, 4);
  EXPECT_FALSE(plan.exact);
  EXPECT_EQ(plan.alignment, 16);
  EXPECT_EQ(plan.groups(), 5);
}

}  // namespace
}  // namespace ferry
