// The bf16 format: bf16 rows travel as they are, wider rows are rounded to nearest even, nothing is hidden.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support/codec_oracle.h"
#include "support/codec_rows.h"

namespace ferry {
namespace {

using test::TypedRow;

std::vector<AnyFormat> bf16_everywhere() {
  std::vector<AnyFormat> found;
  for (const AnyFormat& format : test::formats_everywhere())
    if (std::string(format.name()) == "bf16") found.push_back(format);
  return found;
}

std::vector<std::uint16_t> encoded(const AnyFormat& format, const TypedRow& row, int* non_finite = nullptr) {
  const test::Encoded out = test::encode(format, row.input(), row.hidden(), 1.0f);
  EXPECT_EQ(out.payload.size(), static_cast<std::size_t>(row.hidden()) * 2);
  EXPECT_TRUE(out.scales.empty());
  if (non_finite != nullptr) *non_finite = out.non_finite;
  std::vector<std::uint16_t> columns(out.payload.size() / 2);
  std::memcpy(columns.data(), out.payload.data(), out.payload.size());
  return columns;
}

TEST(CodecBf16, FiniteRowsAreCopiedOrRounded) {
  std::mt19937 random(1);
  for (const AnyFormat& format : bf16_everywhere()) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      for (const int hidden : {32, 96, 2880}) {
        const TypedRow row = test::random_row(dtype, hidden, random);
        int non_finite = -1;
        const std::vector<std::uint16_t> got = encoded(format, row, &non_finite);
        EXPECT_EQ(non_finite, 0);
        for (std::size_t column = 0; column < got.size(); ++column)
          ASSERT_EQ(got[column], test::bf16_nearest(row.values[column])) << row.values[column];
      }
    }
  }
}

TEST(CodecBf16, EveryBf16BitPatternPassesThrough) {
  TypedRow row;
  std::mt19937 random(2);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) test::append(row, static_cast<std::uint16_t>(bits), random);
  for (const AnyFormat& format : bf16_everywhere()) {
    int non_finite = 0;
    const std::vector<std::uint16_t> got = encoded(format, row, &non_finite);
    EXPECT_EQ(non_finite, 1);
    for (std::size_t bits = 0; bits < 65536; ++bits) ASSERT_EQ(got[bits], bits);
    std::vector<float> back(65536);
    format.decode(SerialGroup{}, reinterpret_cast<const std::byte*>(got.data()), nullptr, 65536, 1.0f, back.data());
    for (std::uint32_t bits = 0; bits < 65536; ++bits)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[bits]) >> 16, got[bits]);
  }
}

TEST(CodecBf16, NansAndInfinitiesOfWiderRowsStayAndAreCountedOncePerRow) {
  for (const AnyFormat& format : bf16_everywhere()) {
    TypedRow row;
    row.dtype = DType::f32;
    row.values.assign(64, 1.0f);
    row.values[3] = std::bit_cast<float>(0x7f800001u);  // a NaN that rounding up would turn into an infinity
    row.values[4] = std::bit_cast<float>(0xffffffffu);  // and one into a zero
    row.values[40] = std::numeric_limits<float>::infinity();
    row.values[41] = std::numeric_limits<float>::max();  // rounds to infinity, and was finite
    row.floats = row.values;
    int non_finite = 0;
    const std::vector<std::uint16_t> got = encoded(format, row, &non_finite);
    EXPECT_EQ(non_finite, 1);
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(std::uint32_t{got[3]} << 16)));
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(std::uint32_t{got[4]} << 16)));
    EXPECT_EQ(got[40], 0x7f80);
    EXPECT_EQ(got[41], 0x7f80);
  }
}

}  // namespace
}  // namespace ferry
