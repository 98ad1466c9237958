// Every format at every instruction set of this machine against the oracle: random rows, short last blocks, values that
// are not finite, signs of zero, all three input types.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support/codec_oracle.h"
#include "support/codec_rows.h"

namespace ferry {
namespace {

using test::Encoded;
using test::OracleRow;
using test::TypedRow;

constexpr int kWidths[] = {32, 64, 96, 128, 160, 224, 256, 288, 416, 512, 544, 2880};
constexpr DType kInputs[] = {DType::bf16, DType::f16, DType::f32};

bool is_bf16(const AnyFormat& format) { return std::string(format.name()) == "bf16"; }

Encoded expected(const AnyFormat& format, const TypedRow& row, float input_scale) {
  const OracleRow oracle = test::oracle_encode(test::oracle_format(format.name()), row.values, input_scale);
  return {oracle.payload, oracle.scales, oracle.non_finite};
}

void expect_decodes(const AnyFormat& format, const Encoded& encoded, int hidden, float input_scale) {
  const std::vector<float> want = test::oracle_decode(
      test::oracle_format(format.name()), OracleRow{encoded.payload, encoded.scales, 0}, hidden, input_scale);
  std::vector<float> got(want.size() + 1, 12345.0f);
  struct alignas(16) Line {
    std::uint8_t bytes[16];
  };
  std::vector<Line> payload(encoded.payload.size() / 16 + 1);
  std::vector<Line> scales(encoded.scales.size() / 16 + 1);
  std::memcpy(payload.data(), encoded.payload.data(), encoded.payload.size());
  std::memcpy(scales.data(), encoded.scales.data(), encoded.scales.size());
  format.decode(SerialGroup{}, reinterpret_cast<const std::byte*>(payload.data()),
                reinterpret_cast<const std::byte*>(scales.data()), hidden, input_scale, got.data());
  for (std::size_t column = 0; column < want.size(); ++column) {
    if (std::isnan(want[column]))
      ASSERT_TRUE(std::isnan(got[column])) << format.name() << " column " << column << " of " << hidden;
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[column]), std::bit_cast<std::uint32_t>(want[column]))
          << format.name() << " column " << column << " of " << hidden;
  }
  EXPECT_EQ(got.back(), 12345.0f) << "wrote behind the row";
}

TEST(CodecOracle, RandomRowsEncodeAndDecodeAlike) {
  std::mt19937 random(1);
  for (const AnyFormat& format : test::formats_everywhere()) {
    if (is_bf16(format)) continue;
    for (const int hidden : kWidths) {
      for (const DType dtype : kInputs) {
        const TypedRow row = test::random_row(dtype, hidden, random);
        for (const float input_scale : {1.0f, 37.5f, 1e-3f, 3e4f}) {
          const Encoded got = test::encode(format, row.input(), hidden, input_scale);
          ASSERT_EQ(got, expected(format, row, input_scale))
              << format.name() << " hidden " << hidden << " input " << to_string(dtype) << " scale " << input_scale;
          expect_decodes(format, got, hidden, input_scale);
        }
      }
    }
  }
}

TEST(CodecOracle, EveryBf16ValueInABlockOfItsOwnSize) {
  // 16 neighbouring bit patterns share a block, so that all 65536 pass through scales of about their own size.
  std::mt19937 random(2);
  for (const bool negative : {false, true}) {
    TypedRow row;
    for (std::uint32_t bits = 0; bits < 0x8000u; ++bits)
      test::append(row, static_cast<std::uint16_t>(bits | (negative ? 0x8000u : 0u)), random);
    for (const AnyFormat& format : test::formats_everywhere()) {
      if (is_bf16(format)) continue;
      const Encoded got = test::encode(format, row.input(), row.hidden(), 1.0f);
      ASSERT_EQ(got, expected(format, row, 1.0f)) << format.name();
      EXPECT_EQ(got.non_finite, 128 / format.block()) << format.name();  // 0x7f80 .. 0x7fff
      expect_decodes(format, got, row.hidden(), 1.0f);
    }
  }
}

TEST(CodecOracle, EveryF16Value) {
  std::mt19937 random(3);
  TypedRow row;
  row.dtype = DType::f16;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) test::append(row, static_cast<std::uint16_t>(bits), random);
  for (const AnyFormat& format : test::formats_everywhere()) {
    if (is_bf16(format)) continue;
    ASSERT_EQ(test::encode(format, row.input(), row.hidden(), 1.0f), expected(format, row, 1.0f)) << format.name();
  }
}

TEST(CodecOracle, ABlockThatIsNotFiniteIsMarkedAndCountedAndSpoilsNoOther) {
  std::mt19937 random(4);
  constexpr int kHidden = 2880;  // the last block of 128 has 64 columns
  constexpr std::uint16_t kBad[] = {0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81};
  for (const AnyFormat& format : test::formats_everywhere()) {
    if (is_bf16(format)) continue;
    for (const int column : {0, 15, 127, 128, 1000, kHidden - 65, kHidden - 1}) {
      TypedRow row = test::random_row(DType::bf16, kHidden, random);
      const std::uint16_t bad = kBad[random() % std::size(kBad)];
      const auto at = static_cast<std::size_t>(column);
      row.halves[at] = bad;
      row.values[at] = std::bit_cast<float>(std::uint32_t{bad} << 16);
      const Encoded got = test::encode(format, row.input(), kHidden, 1.0f);
      ASSERT_EQ(got, expected(format, row, 1.0f)) << format.name() << " column " << column;
      EXPECT_EQ(got.non_finite, 1);
      expect_decodes(format, got, kHidden, 1.0f);
    }
  }
}

TEST(CodecOracle, ZerosKeepTheirSign) {
  TypedRow row;
  std::mt19937 random(5);
  for (int column = 0; column < 160; ++column) test::append(row, column % 3 == 0 ? 0x8000 : 0x0000, random);
  for (const AnyFormat& format : test::formats_everywhere()) {
    const Encoded got = test::encode(format, row.input(), row.hidden(), 1.0f);
    std::vector<float> back(160, 1.0f);
    format.decode(SerialGroup{}, reinterpret_cast<const std::byte*>(got.payload.data()),
                  reinterpret_cast<const std::byte*>(got.scales.data()), 160, 1.0f, back.data());
    for (std::size_t column = 0; column < 160; ++column) {
      EXPECT_EQ(back[column], 0.0f) << format.name();
      EXPECT_EQ(std::signbit(back[column]), column % 3 == 0) << format.name() << " column " << column;
    }
  }
}

TEST(CodecOracle, ExtremeInputScalesKeepNvfp4Defined) {
  std::mt19937 random(6);
  for (const AnyFormat& format : test::formats_everywhere()) {
    if (std::string(format.name()) != "nvfp4") continue;
    for (const float input_scale : {std::numeric_limits<float>::min(), 1e-20f, 1e20f}) {
      const TypedRow row = test::random_row(DType::bf16, 544, random);
      ASSERT_EQ(test::encode(format, row.input(), 544, input_scale), expected(format, row, input_scale)) << input_scale;
    }
  }
}

// What a format can hold exactly comes back exactly, to the bit of the payload.
TEST(CodecOracle, ValuesOnTheGridSurvive) {
  std::mt19937 random(7);
  for (const AnyFormat& format : test::formats_everywhere()) {
    if (is_bf16(format)) continue;
    const test::OracleFormat& oracle = test::oracle_format(format.name());
    TypedRow row;
    row.dtype = DType::f32;
    for (int column = 0; column < 2880; ++column) {
      const int sign = static_cast<int>(random() & 1u) << (oracle.element.bits() - 1);
      const auto magnitude = static_cast<int>(random() % static_cast<unsigned>(oracle.element.max_code + 1));
      const int code = (column % format.block() == 5 ? oracle.element.max_code : magnitude) | sign;
      const int exponent = column / format.block() % 8 - 4;  // every block its own power of two
      row.values.push_back(static_cast<float>(std::ldexp(oracle.element.value(code), exponent)));
    }
    row.floats = row.values;
    const Encoded first = test::encode(format, row.input(), row.hidden(), 1.0f);
    std::vector<float> back(row.values.size());
    format.decode(SerialGroup{}, reinterpret_cast<const std::byte*>(first.payload.data()),
                  reinterpret_cast<const std::byte*>(first.scales.data()), row.hidden(), 1.0f, back.data());
    for (std::size_t column = 0; column < back.size(); ++column)
      ASSERT_EQ(back[column], row.values[column]) << format.name() << " column " << column;
  }
}

}  // namespace
}  // namespace ferry
