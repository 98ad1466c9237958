// Shape: which rank owns which expert, and every shape that cannot work.
#include "ferry/shape.h"

#include <gtest/gtest.h>

#include <string>

#include "conformance/oracle/routing_patterns.h"
#include "ferry/error.h"

namespace ferry {
namespace {

TEST(Shape, EveryExpertHasOneOwnerAndTheFirstRanksOwnTheRest) {
  test::Random random(2);
  for (int trial = 0; trial < 100; ++trial) {
    const Shape shape = test::random_shape(random, 12);
    int next = 0;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      EXPECT_EQ(first_expert(shape, rank), next);
      const int local = num_local_experts(shape, rank);
      EXPECT_EQ(local, shape.experts / shape.ranks + (rank < shape.experts % shape.ranks ? 1 : 0));
      EXPECT_LE(local, max_local_experts(shape));
      for (int i = 0; i < local; ++i) EXPECT_EQ(owner_of(shape, next++), rank);
    }
    EXPECT_EQ(next, shape.experts);
  }
}

TEST(Shape, IdBitsHoldEveryExpertAndNone) {
  EXPECT_EQ(id_bits(1), 1);
  EXPECT_EQ(id_bits(2), 2);
  EXPECT_EQ(id_bits(3), 2);
  EXPECT_EQ(id_bits(4), 3);
  EXPECT_EQ(id_bits(255), 8);
  EXPECT_EQ(id_bits(256), 9);
}

TEST(Shape, SaysWhyItCannotWork) {
  const Shape good{.ranks = 4, .experts = 64, .top_k = 8, .max_tokens = 512, .hidden = 7168};
  ASSERT_EQ(why_invalid(good), nullptr);
  EXPECT_NO_THROW(require_valid(good));
  struct Bad {
    Shape shape;
    const char* names;
  };
  const Bad all[] = {
      {{0, 64, 8, 512, 64}, "ranks"},  {{2049, 4096, 8, 512, 64}, "ranks"}, {{4, 0, 8, 512, 64}, "experts"},
      {{4, 3, 2, 512, 64}, "experts"}, {{4, 64, 0, 512, 64}, "top_k"},      {{4, 64, 33, 512, 64}, "top_k"},
      {{4, 6, 7, 512, 64}, "top_k"},   {{4, 64, 8, 0, 64}, "max_tokens"},   {{4, 64, 8, 512, 0}, "hidden"},
      {{4, 64, 8, 512, 48}, "hidden"}, {{4, 64, 8, 512, -32}, "hidden"},    {{1, 1000, 32, 1 << 27, 32}, "routing"},
  };
  for (const Bad& bad : all) {
    ASSERT_NE(why_invalid(bad.shape), nullptr) << to_string(bad.shape);
    EXPECT_NE(std::string(why_invalid(bad.shape)).find(bad.names), std::string::npos) << why_invalid(bad.shape);
    try {
      require_valid(bad.shape);
      ADD_FAILURE() << to_string(bad.shape);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("experts=" + std::to_string(bad.shape.experts)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ferry
