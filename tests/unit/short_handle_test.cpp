// How many bytes short handles take.
#include <gtest/gtest.h>

#include "ferry/exchange.h"

namespace ferry {
namespace {

ExchangeOptions with_short_handles() {
  ExchangeOptions options;
  options.short_handles = true;
  return options;
}

// 64 ranks with 4096 tokens each, top-8 of 256 experts, drawn evenly: a rank gets 32768 rows in about 31040 messages.
TEST(ShortHandles, TakeLessThanTheTwentiethPartInALargeWorld) {
  const Shape shape{.ranks = 64, .experts = 256, .top_k = 8, .max_tokens = 4096, .hidden = 7168};
  const RowLayout layout = row_layout(shape, with_short_handles(), 0);
  EXPECT_EQ(layout.handle_bytes, 17'565'696);
  EXPECT_EQ(layout.short_handle_bytes(4096, 31040, 32768), 778'544);
  RowCounts counts;  // the host knows rows only
  counts.rows = 32768;
  counts.by_expert.assign(4, 8192);
  counts.by_source.assign(64, 512);
  EXPECT_EQ(layout.short_handle_bytes(4096, counts), 792'576);
}

// 12 n K + messages (8 + 8 K) + 8 R (L + 4) + 256, whatever comes.
TEST(ShortHandles, TakeNoMoreThanTheirContent) {
  for (const int ranks : {2, 8, 64})
    for (const int top_k : {1, 4, 8, 32})
      for (const std::int64_t tokens : {1, 17, 256}) {
        const Shape shape{.ranks = ranks, .experts = 64, .top_k = top_k, .max_tokens = 4096, .hidden = 64};
        const RowLayout layout = row_layout(shape, with_short_handles(), 0);
        const std::int64_t local = layout.groups;
        for (const std::int64_t messages : {std::int64_t{0}, std::int64_t{5}, tokens, tokens * ranks})
          for (const std::int64_t of_message : {std::int64_t{1}, std::min<std::int64_t>(top_k, local)}) {
            const std::int64_t rows = messages * of_message;
            const std::int64_t runs = (messages + 31) / 32;
            EXPECT_LE(layout.short_handle_bytes(tokens, messages, rows),
                      12 * tokens * top_k + messages * (8 + 8 * top_k) + 8 * ranks * (local + 4) + 256 + 4 * runs +
                          (ranks == 2 ? 4 * local : 0))
                << ranks << " ranks, top " << top_k << ", " << tokens << " tokens, " << messages << " messages";
          }
      }
}

TEST(ShortHandles, TakeNoMoreThanWholeOnes) {
  const Shape shape{.ranks = 3, .experts = 6, .top_k = 3, .max_tokens = 5, .hidden = 32};
  const RowLayout layout = row_layout(shape, with_short_handles(), 1);
  EXPECT_EQ(layout.short_handle_bytes(5, 1'000'000, 1'000'000), layout.short_handle_bytes(5, 15, 45));
  EXPECT_LE(layout.short_handle_bytes(5, 15, 45), layout.handle_bytes);
  EXPECT_LT(layout.short_handle_bytes(0, 0, 0), layout.short_handle_bytes(5, 0, 0));
  for (const std::int64_t bad : {0, 1, 2})
    EXPECT_THROW(layout.short_handle_bytes(bad == 0 ? -1 : 0, bad == 1 ? -1 : 0, bad == 2 ? -1 : 0), Error);
}

// So many tokens have no number in 27 bits.
TEST(ShortHandles, AreWholeWhereTokensAreTooMany) {
  const Shape shape{.ranks = 128, .experts = 128, .top_k = 1, .max_tokens = (1 << 20) + 1, .hidden = 64};
  const RowLayout layout = row_layout(shape, with_short_handles(), 0);
  EXPECT_EQ(layout.short_handle_bytes(1, 1, 1), layout.handle_bytes);
}

}  // namespace
}  // namespace ferry
