// Sizes: what is refused before anything is allocated, rows and their capacity, shares of a shared expert.
#include "exchange/sizes/sizes.h"
#include "exchange/checks/valid_options.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "examples/int8_block64.h"

namespace ferry {
namespace {

constexpr Shape kShape{.ranks = 4, .experts = 10, .top_k = 3, .max_tokens = 9, .hidden = 64};

template <int kBytes>
struct ScalesOf : Int8Block64 {
  FERRY_HD static constexpr int scale_bytes() { return kBytes; }
};
struct ScalesInNoLayout : Int8Block64 {
  FERRY_HD static constexpr ScaleLayout scale_layout() { return ScaleLayout::none; }
};
struct ScalesOfNoBlock : Int8Block64 {
  FERRY_HD static constexpr int block() { return 0; }
};

struct AlignedToThree : Int8Block64 {
  FERRY_HD static constexpr int alignment() { return 3; }
};

void expect_refused(const char* names, const std::function<void(ExchangeOptions&)>& spoil,
                    const Shape& shape = kShape) {
  ExchangeOptions options;
  spoil(options);
  try {
    require_valid(shape, options);
    ADD_FAILURE() << "not refused: " << names;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(names), std::string::npos) << error.what();
  }
}

TEST(Sizes, SettingUpMayTakeLongerThanACall) {
  using std::chrono::milliseconds;
  EXPECT_EQ(set_up_deadline({}), kDefaultDeadline);
  EXPECT_EQ(set_up_deadline({.deadline = milliseconds(20)}), kDefaultDeadline);
  EXPECT_EQ(set_up_deadline({.deadline = kMaxDeadline}), kMaxDeadline);
  EXPECT_EQ(set_up_deadline({.deadline = kMaxDeadline, .set_up_deadline = milliseconds(20)}), milliseconds(20));
}

// Scales lie in tensors of u8 or f32. Of another size only a part of each would be written.
TEST(Sizes, RefusesAFormatWhoseScalesFitNoTensor) {
  expect_refused("scale_bytes of the format int8_block64 is 2", [](auto& o) { o.format = any_format<ScalesOf<2>>(); });
  expect_refused("scale_bytes of the format int8_block64 is 8", [](auto& o) { o.format = any_format<ScalesOf<8>>(); });
  expect_refused("scale_bytes 0", [](auto& o) { o.format = any_format<ScalesOf<0>>(); });
  expect_refused("scale_layout none", [](auto& o) { o.format = any_format<ScalesInNoLayout>(); });
  expect_refused("block 0", [](auto& o) { o.format = any_format<ScalesOfNoBlock>(); });
  EXPECT_NO_THROW(require_valid(kShape, {.format = any_format<Int8Block64>()}));
}

TEST(Sizes, RefusesOptionsThatDoNotFit) {
  EXPECT_NO_THROW(require_valid(kShape, ExchangeOptions{}));
  expect_refused("tiled_scales", [](ExchangeOptions& o) { o.tiled_scales = true; });
  for (const int alignment : {-1, 2, 3, 6, 256})
    expect_refused("expert_alignment", [=](ExchangeOptions& o) { o.expert_alignment = alignment; });
  expect_refused("allreduce_world_size", [](ExchangeOptions& o) { o.allreduce_world_size = 0; });
  expect_refused("allreduce_world_size", [](ExchangeOptions& o) { o.allreduce_world_size = 2; });
  expect_refused("concurrent", [](ExchangeOptions& o) { o.concurrent = 0; });
  expect_refused("reserve_sms", [](ExchangeOptions& o) { o.gpu.reserve_sms = -1; });
  for (const int copies : {0, 1, 3, 8})
    expect_refused("message_copies", [=](ExchangeOptions& o) { o.message_copies = copies; });
  expect_refused("4294836216 slots", [](ExchangeOptions& o) { o.message_copies = 4; },
                 {.ranks = 127, .experts = 127, .top_k = 1, .max_tokens = 8454402, .hidden = 32});
  for (const Reduction reduction : {Reduction::exact, Reduction::either})
    expect_refused(to_string(reduction), [=](ExchangeOptions& o) {
      o.reduction = reduction;
      o.late_weights = true;
    });
  expect_refused("workers", [](ExchangeOptions& o) { o.workers = 0; });
  expect_refused("workers", [](ExchangeOptions& o) { o.workers = 100'000; });
  expect_refused("deadline", [](ExchangeOptions& o) { o.deadline = std::chrono::milliseconds(0); });
  expect_refused("deadline", [](ExchangeOptions& o) { o.deadline = kMaxDeadline + std::chrono::milliseconds(1); });
  EXPECT_NO_THROW(require_valid(kShape, {.deadline = kMaxDeadline}));
  expect_refused("set_up_deadline", [](ExchangeOptions& o) { o.set_up_deadline = std::chrono::milliseconds(-1); });
  expect_refused("set_up_deadline",
                 [](ExchangeOptions& o) { o.set_up_deadline = kMaxDeadline + std::chrono::milliseconds(1); });
  expect_refused("mask", [](ExchangeOptions& o) { o.mask.resize(5); });
  expect_refused("rows", [](ExchangeOptions&) {}, {127, 127, 1, (1 << 25) - 1, 64});
  expect_refused("power of two", [](ExchangeOptions& o) { o.format = any_format<AlignedToThree>(); });
  expect_refused("4294967295", [](ExchangeOptions&) {}, {1, 1 << 30, 1, 1, 32});
  expect_refused("4294967295", [](ExchangeOptions&) {}, {2, 2, 1, 1, 0x7FFFFFE0});
}

TEST(Sizes, RowCapacityIsTheWorstCase) {
  ExchangeOptions options;
  options.expert_alignment = 8;
  RowLayout layout = row_layout(kShape, options, 0);  // 3 of 10 experts
  EXPECT_EQ(layout.groups, 3);
  EXPECT_EQ(layout.min_row_capacity, 4 * 9 * 3 + 3 * 7);
  EXPECT_EQ(row_layout(kShape, options, 3).min_row_capacity, 4 * 9 * 2 + 2 * 7);  // 2 of 10
  options.fused_shared_expert = true;
  layout = row_layout(kShape, options, 3);
  EXPECT_EQ(layout.groups, 3);
  EXPECT_EQ(layout.min_row_capacity, 4 * 9 * 2 + 9 + 3 * 7);
}

TEST(Sizes, SkipA2aIsAWorldOfOneRank) {
  ExchangeOptions options;
  options.skip_a2a = true;
  const LocalView view = local_view(kShape, options, 3);
  EXPECT_EQ(view.shape.ranks, 1);
  EXPECT_EQ(view.shape.experts, 2);
  EXPECT_EQ(view.rank, 0);
  EXPECT_EQ(view.first_id, first_expert(kShape, 3));
  EXPECT_EQ(row_layout(kShape, options, 3).min_row_capacity, 9 * 2);
}

TEST(Sizes, SharesOfASharedExpertCoverEveryTokenOnce) {
  for (const int world : {1, 3, 4, 7}) {
    for (const int n : {0, 1, 6, 9}) {
      ExchangeOptions options;
      options.fused_shared_expert = true;
      options.skip_a2a = true;
      options.allreduce_world_size = world;
      int next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const TokenRange share = shared_tokens(options, rank, n);
        EXPECT_EQ(share.begin, next);
        EXPECT_GE(share.end, share.begin);
        next = share.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(Sizes, MemoryUseListsWhatIsAllocated) {
  ExchangeOptions options;
  options.format = format_named("fp8_block128");
  for (const bool has_remote_ranks : {false, true}) {
    const MemoryUse use = memory_use(kShape, options, has_remote_ranks);
    std::size_t sum = 0;
    for (const MemoryUse::Region& region : use.regions) sum += region.bytes;
    EXPECT_EQ(sum, use.total);
    EXPECT_EQ(use.total, make_heap_map(kShape, options, 0, has_remote_ranks).total());
  }
}

// Nothing is sent, so there are no send buffers.
TEST(Sizes, MemoryUseOfReplicatedTokensIsTheSameForRemoteRanks) {
  ExchangeOptions options;
  options.skip_a2a = true;
  EXPECT_EQ(memory_use(kShape, options, true).total, memory_use(kShape, options, false).total);
}

}  // namespace
}  // namespace ferry
