// The formats of an exchange: what differs between them, and what does not.
#include "exchange/sizes/call_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry::test {
namespace {

constexpr Shape kShape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 16, .hidden = 96};

ExchangeOptions three_formats() {
  ExchangeOptions options;
  options.format = format_named("mxfp4");
  options.expert_alignment = 8;
  options.more_formats.resize(2);
  options.more_formats[0].expert_alignment = 16;  // bf16
  options.more_formats[1].format = format_named("mxfp8");
  options.more_formats[1].tiled_scales = true;
  return options;
}

TEST(CallFormats, AreTheOwnOneAndTheOthersInOrder) {
  const ExchangeOptions options = three_formats();
  ASSERT_EQ(num_formats(options), 3);
  EXPECT_STREQ(options_in(options, 0).format.name(), "mxfp4");
  EXPECT_STREQ(options_in(options, 1).format.name(), "bf16");
  EXPECT_EQ(options_in(options, 1).expert_alignment, 16);
  EXPECT_STREQ(options_in(options, 1).more_formats[0].format.name(), "mxfp4");
  EXPECT_EQ(options_in(options, 1).more_formats[0].expert_alignment, 8);
  EXPECT_TRUE(options_in(options, 2).tiled_scales);
  EXPECT_FALSE(options_in(options, 2).more_formats[1].tiled_scales);
}

// Slots and words lie at the same places, whichever format is asked: dispatches in all of them share one heap.
TEST(CallFormats, ShareTheOffsetsOfTheLargest) {
  for (const bool has_remote_ranks : {false, true}) {
    const ExchangeOptions options = three_formats();
    const HeapMap own = make_heap_map(kShape, options, 1, has_remote_ranks);
    ExchangeOptions largest;
    largest.row_orders = options.row_orders;
    const HeapMap bf16 = make_heap_map(kShape, largest, 1, has_remote_ranks);
    for (int format = 0; format < 3; ++format) {
      const HeapMap map = make_heap_map(kShape, options_in(options, format), 1, has_remote_ranks);
      EXPECT_EQ(map.message_bytes(), message_bytes(options_in(options, format).format, kShape.hidden));
      EXPECT_EQ(map.total(), own.total());
      EXPECT_EQ(map.total(), bf16.total()) << "the memory is that of the largest format alone";
      EXPECT_EQ(map.message(3, 2, 5), own.message(3, 2, 5));
      EXPECT_EQ(map.sent_message(2, 7), own.sent_message(2, 7));
      EXPECT_EQ(map.arrived(3, 1, 4), own.arrived(3, 1, 4));
    }
  }
}

TEST(CallFormats, KeepTheNewestWhereThereIsNoSuchFormat) {
  CallFormats formats;
  formats.set(kShape, three_formats(), 2);
  EXPECT_EQ(formats.layout().alignment, 8);
  formats.take(1);
  EXPECT_EQ(formats.layout().alignment, 16);
  EXPECT_STREQ(formats.options_in(1).format.name(), "bf16");
  for (const int none : {-1, 3}) {
    try {
      formats.take(none);
      ADD_FAILURE() << "taken: " << none;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr("rank 2: format is " + std::to_string(none)));
    }
  }
  EXPECT_EQ(formats.layout().alignment, 16);
  EXPECT_EQ(formats.layout_in(2).scale_layout, ScaleLayout::tiled);
  formats.take(0);
  EXPECT_EQ(formats.layout().alignment, 8);
}

}  // namespace
}  // namespace ferry::test
