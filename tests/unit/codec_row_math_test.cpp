// The vectorised row arithmetic against one column at a time, bit for bit, at lengths around the width of a vector.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "cpu/formats/row_math.h"
#include "support/codec_oracle.h"

namespace ferry {
namespace {

constexpr int kCounts[] = {0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 2880};

float wide(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::vector<std::uint16_t> random_bf16(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> row;
  for (int i = 0; i < count; ++i) row.push_back(test::bf16_nearest(normal(random)));
  return row;
}

// Rounds after each of the two operations: volatile keeps the compiler from fusing them.
float multiply_then_add(float sum, float weight, float value) {
  const volatile float product = weight * value;
  return sum + product;
}

TEST(RowMath, AccumulatesWithTwoRoundings) {
  int fused_differs = 0;
  for (const int count : kCounts) {
    const std::vector<std::uint16_t> row = random_bf16(count, 1);
    std::vector<float> floats;
    std::vector<float> from_bf16;
    for (const std::uint16_t bits : row) {
      floats.push_back(wide(bits) * 1.7f);
      from_bf16.push_back(wide(bits) * 0.3f);
    }
    std::vector<float> from_f32 = from_bf16;
    const std::vector<float> before = from_bf16;
    constexpr float kWeight = 0.1234567f;
    cpu::accumulate_bf16(row.data(), kWeight, from_bf16.data(), count);
    cpu::accumulate_f32(floats.data(), kWeight, from_f32.data(), count);
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(from_bf16[i], multiply_then_add(before[i], kWeight, wide(row[i])));
      EXPECT_EQ(from_f32[i], multiply_then_add(before[i], kWeight, floats[i]));
      fused_differs += std::fma(kWeight, floats[i], before[i]) != from_f32[i] ? 1 : 0;
    }
  }
  EXPECT_GT(fused_differs, 0) << "the data cannot tell a fused multiply-add from two operations";
}

TEST(RowMath, RoundsToNearestEven) {
  std::mt19937 random(2);
  for (const int count : kCounts) {
    std::vector<float> values;
    for (int i = 0; i < count; ++i) {
      auto bits = static_cast<std::uint32_t>(random());
      if (i % 3 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // a tie
      const float value = std::bit_cast<float>(bits);
      values.push_back(std::isfinite(value) ? value : 1.0f);
    }
    std::vector<std::uint16_t> rounded(values.size() + 1, 0x1234);
    cpu::round_to_bf16(values.data(), rounded.data(), count);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(rounded[i], test::bf16_nearest(values[i])) << values[i];
    EXPECT_EQ(rounded.back(), 0x1234);
  }
}

TEST(RowMath, ANanStaysANanAndAnInfinityAnInfinity) {
  const float values[] = {std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu), HUGE_VALF, -HUGE_VALF};
  std::uint16_t rounded[4];
  cpu::round_to_bf16(values, rounded, 4);
  EXPECT_TRUE(std::isnan(wide(rounded[0])));
  EXPECT_TRUE(std::isnan(wide(rounded[1])));
  EXPECT_EQ(rounded[2], 0x7f80);
  EXPECT_EQ(rounded[3], 0xff80);
}

TEST(RowMath, WidensAndCountsWhatIsNotFinite) {
  for (const int count : kCounts) {
    std::vector<std::uint16_t> row = random_bf16(count, 3);
    int bad = 0;
    for (std::size_t i = 0; i < row.size(); i += 5) {
      row[i] = static_cast<std::uint16_t>(i % 2 == 0 ? 0x7f80 : 0xffc3);
      ++bad;
    }
    std::vector<float> floats(row.size());
    cpu::widen_bf16(row.data(), floats.data(), count);
    for (std::size_t i = 0; i < row.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::uint32_t{row[i]} << 16);
    EXPECT_EQ(cpu::count_non_finite(row.data(), count), bad);
    EXPECT_EQ(cpu::count_non_finite(floats.data(), count), bad);
  }
}

}  // namespace
}  // namespace ferry
