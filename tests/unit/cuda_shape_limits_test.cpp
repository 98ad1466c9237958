// Shapes that GPU ranks refuse.
#include "cuda/exchange/plan/shape_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace ferry::cuda {
namespace {

// One expert leaves an entry of the routing table room for more tokens than a tagged word can count.
Shape of_tokens(int max_tokens) { return {1, 1, 1, max_tokens, 32}; }

TEST(CountableTokens, AreThoseThatATaggedWordHolds) {
  EXPECT_NO_THROW(require_countable_tokens(of_tokens(1), 0));
  EXPECT_NO_THROW(require_countable_tokens(of_tokens((1 << 30) - 2), 0));
}

TEST(CountableTokens, AreRefusedBeyondWithTheShapeAndTheLimit) {
  for (const int max_tokens : {(1 << 30) - 1, 1 << 30, std::numeric_limits<int>::max()}) {
    const Shape shape = of_tokens(max_tokens);
    EXPECT_NO_THROW(require_valid(shape));  // other backends take it
    try {
      require_countable_tokens(shape, 3);
      ADD_FAILURE() << "took " << max_tokens;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_THAT(error.what(), testing::HasSubstr("rank 3: " + to_string(shape)));
      EXPECT_THAT(error.what(), testing::HasSubstr("at most 1073741822 tokens. Make max_tokens smaller"));
    }
  }
}

TEST(CountableEntries, AreThoseOf32Bits) {
  EXPECT_NO_THROW(require_countable_entries({64, 64, 32, (1 << 20) - 1, 32}, 0));
  const Shape shape{.ranks = 72, .experts = 72, .top_k = 32, .max_tokens = (1 << 20) - 1, .hidden = 32};
  EXPECT_NO_THROW(require_valid(shape));  // other backends take it
  try {
    require_countable_entries(shape, 3);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 3: " + to_string(shape)));
  }
}

}  // namespace
}  // namespace ferry::cuda
