// Formats and scale layouts with many threads to a row give the bytes that one thread gives.
#include <gtest/gtest.h>

#include <atomic>

#include "examples/int8_block64.h"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/layout/scale_layout.h"
#include "support/codec_rows.h"
#include "support/lockstep_group.h"

namespace ferry {
namespace {

template <class F>
class CodecGroup : public testing::Test {};
using AllFormats = Formats::Into<testing::Types, Int8Block64>;
TYPED_TEST_SUITE(CodecGroup, AllFormats);

template <class F, int kWidth>
void expect_as_alone(int threads, DType dtype, int hidden, bool with_nan) {
  std::mt19937 random(static_cast<unsigned>(hidden + threads));
  test::TypedRow row = test::random_row(dtype, hidden, random);
  if (with_nan) {
    const auto last = static_cast<std::size_t>(hidden) - 1;
    if (dtype == DType::f32)
      row.floats[last] = __builtin_nanf("");
    else
      row.halves[last] = 0x7fff;
  }
  const test::Encoded alone = test::encode(any_format<F>(), row.input(), hidden, 1.5f);
  ASSERT_EQ(alone.non_finite, with_nan ? 1 : 0);

  alignas(16) static std::byte payload[8192];
  alignas(16) static std::byte scales[8192];
  static float back[4096];
  std::atomic<int> non_finite = 0;
  std::memset(payload, test::kUntouchedByte, sizeof payload);
  std::memset(scales, test::kUntouchedByte, sizeof scales);
  test::run_lockstep<kWidth>(threads, [&](const auto& group) {
    non_finite += F{}.encode(group, row.input(), hidden, 1.5f, payload, scales);
    group.sync();
    F{}.decode(group, payload, scales, hidden, 1.5f, back);
  });
  EXPECT_EQ(non_finite, alone.non_finite);
  EXPECT_EQ(std::memcmp(payload, alone.payload.data(), alone.payload.size()), 0) << hidden;
  EXPECT_EQ(std::memcmp(scales, alone.scales.data(), alone.scales.size()), 0) << hidden;
  EXPECT_EQ(static_cast<std::uint8_t>(payload[alone.payload.size()]), test::kUntouchedByte);
  EXPECT_EQ(static_cast<std::uint8_t>(scales[alone.scales.size()]), test::kUntouchedByte);

  std::vector<float> back_alone(static_cast<std::size_t>(hidden));
  F{}.decode(SerialGroup{}, payload, scales, hidden, 1.5f, back_alone.data());
  EXPECT_EQ(std::memcmp(back, back_alone.data(), back_alone.size() * 4), 0) << hidden;
}

TYPED_TEST(CodecGroup, ManyThreadsGiveTheBytesOfOne) {
  for (const int hidden : {32, 288, 544}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      expect_as_alone<TypeParam, 4>(4, dtype, hidden, false);
      expect_as_alone<TypeParam, 16>(16, dtype, hidden, true);
    }
    expect_as_alone<TypeParam, 32>(32, DType::f16, hidden, true);
  }
}

// A group of several runs, as a block of several warps is.
TYPED_TEST(CodecGroup, SeveralRunsShareARow) { expect_as_alone<TypeParam, 8>(24, DType::bf16, 832, false); }

TEST(ScaleLayoutGroup, ManyThreadsPlaceScalesAsOneDoes) {
  constexpr int kPerRow = 10;
  std::uint8_t scales[kPerRow];
  for (int i = 0; i < kPerRow; ++i) scales[i] = static_cast<std::uint8_t>(i + 1);
  const auto* from = reinterpret_cast<const std::byte*>(scales);
  for (const ScaleLayout layout : {ScaleLayout::row_major, ScaleLayout::transposed, ScaleLayout::tiled}) {
    std::vector<std::byte> alone(3 * 128 * 12, std::byte{test::kUntouchedByte});
    std::vector<std::byte> shared = alone;
    const ScaleTensor one{alone.data(), layout, 1, kPerRow, 200};
    const ScaleTensor many{shared.data(), layout, 1, kPerRow, 200};
    const ScaleRow at{70, 64, 1};
    store_scales(SerialGroup{}, one, from, at);
    zero_scale_tail(SerialGroup{}, one, 64, 71, 1);
    test::run_lockstep<4>(8, [&](const auto& group) {
      store_scales(group, many, from, at);
      group.sync();
      zero_scale_tail(group, many, 64, 71, 1);
    });
    EXPECT_EQ(alone, shared) << to_string(layout);
  }
}

}  // namespace
}  // namespace ferry
