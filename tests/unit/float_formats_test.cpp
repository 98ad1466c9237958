// f16 and f32, in which results may travel: every float16 by the rule of its bits, and the roundings between them.
#include "ferry/detail/formats/float_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ferry/error.h"

namespace ferry {
namespace {

std::uint16_t rounded(float value) { return codec::f16_of(codec::bits_of(value)); }
// The value of finite float16 bits, as its definition says it.
double value_of(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = (bits & 1023) / 1024.0;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1.0 + mantissa, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(FloatFormats, EveryFloat16StaysAsItIs) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits)
    for (const std::uint32_t sign : {0u, 0x8000u})
      EXPECT_EQ(rounded(static_cast<float>(value_of(static_cast<std::uint16_t>(sign | bits)))), sign | bits);
}

// Between two neighbours: below the middle the lower one, above it the upper one, and in it the even one.
TEST(FloatFormats, RoundToTheNearestFloat16) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = value_of(static_cast<std::uint16_t>(bits)),
                 high = value_of(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    EXPECT_EQ(rounded(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(rounded(std::nextafter(middle, 0.0f)), bits) << bits;
    EXPECT_EQ(rounded(std::nextafter(middle, 1e9f)), bits + 1) << bits;
    EXPECT_EQ(rounded(-middle), 0x8000 + bits + (bits & 1)) << bits;
  }
}

TEST(FloatFormats, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(rounded(65519.996f), 0x7bff);
  EXPECT_EQ(rounded(65520.0f), 0x7c00);
  EXPECT_EQ(rounded(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_GT(rounded(std::numeric_limits<float>::quiet_NaN()), 0x7c00);
}

TEST(FloatFormats, RowsKeepTheirValuesAndCountWhatIsNotFinite) {
  std::vector<float> row(32);
  for (int i = 0; i < 32; ++i) row[static_cast<std::size_t>(i)] = std::ldexp(1.0f + static_cast<float>(i) / 32, i - 16);
  for (const AnyFormat& format : {any_format<F16>(), any_format<F32>()}) {
    std::vector<float> payload(32), out(32);
    auto* const codes = reinterpret_cast<std::byte*>(payload.data());
    EXPECT_EQ(format.encode(SerialGroup{}, {row.data(), DType::f32}, 32, 1.0f, codes, nullptr), 0);
    format.decode(SerialGroup{}, codes, nullptr, 32, 1.0f, out.data());
    EXPECT_EQ(out, row) << format.name();
    std::vector<float> bad = row;
    bad[7] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(format.encode(SerialGroup{}, {bad.data(), DType::f32}, 32, 1.0f, codes, nullptr), 1);
  }
}

TEST(FloatFormats, AreFormatsOfResults) {
  EXPECT_EQ(result_formats().size(), all_formats().size() + 2);
  EXPECT_EQ(result_format_named("f32").payload_bytes(64), 256u);
  EXPECT_EQ(result_format_named("nvfp4"), format_named("nvfp4"));
  EXPECT_THROW(result_format_named("f64"), Error);
}

}  // namespace
}  // namespace ferry
