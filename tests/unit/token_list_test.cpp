// Token lists: which tokens of a source come, and how many of those before a token do.
#include "ferry/detail/layout/token_list.h"

#include <gtest/gtest.h>

#include <vector>

#include "conformance/oracle/routing_patterns.h"
#include "cpu/steps/routing/token_lists.h"

namespace ferry {
namespace {

TEST(TokenList, GivesEveryTokenItsPlace) {
  test::Random random(7);
  for (const int tokens : {0, 1, 31, 32, 33, 64, 200}) {
    std::vector<bool> named(static_cast<std::size_t>(tokens));
    std::vector<std::uint64_t> list(token_list_words(tokens));
    for (int token = 0; token < tokens; ++token) {
      named[static_cast<std::size_t>(token)] = random.chance(0.4) || token % 32 == 31;
      if (named[static_cast<std::size_t>(token)])
        list[static_cast<std::size_t>(1 + token / 32)] |= std::uint64_t{1} << token % 32;
    }
    cpu::count_tokens(list.data(), tokens, 9);
    std::uint32_t before = 0;
    for (int token = 0; token < tokens; ++token) {
      const std::uint64_t word = list[static_cast<std::size_t>(1 + token / 32)];
      EXPECT_EQ(comes(word, token % 32), named[static_cast<std::size_t>(token)]);
      EXPECT_EQ(tokens_before(word, token % 32), before);
      before += named[static_cast<std::size_t>(token)] ? 1u : 0u;
    }
    EXPECT_EQ(low_of(list[0]), before);
    EXPECT_EQ(high_of(list[0]), 9u);
  }
}

TEST(TokenList, HasAWordForEach32Tokens) {
  EXPECT_EQ(token_list_words(0), 1u);
  EXPECT_EQ(token_list_words(32), 2u);
  EXPECT_EQ(token_list_words(33), 3u);
}

}  // namespace
}  // namespace ferry
