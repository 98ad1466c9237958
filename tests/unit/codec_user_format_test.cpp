// A format from outside the library, used as the library's own are; and docs/adding-a-format.md, which shows it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>

#include "examples/int8_block64.h"
#include "ferry/error.h"
#include "support/codec_rows.h"

namespace ferry {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(FERRY_TEST_DATA) + "/../../" + path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<float> decoded(const AnyFormat& format, const test::Encoded& encoded, int hidden) {
  std::vector<float> values(static_cast<std::size_t>(hidden));
  std::vector<float> scales(encoded.scales.size() / 4);
  std::memcpy(scales.data(), encoded.scales.data(), encoded.scales.size());
  format.decode(SerialGroup{}, reinterpret_cast<const std::byte*>(encoded.payload.data()),
                reinterpret_cast<const std::byte*>(scales.data()), hidden, 1.0f, values.data());
  return values;
}

TEST(UserFormat, SaysWhatItIsThroughAnyFormat) {
  const AnyFormat format = any_format<Int8Block64>();
  EXPECT_STREQ(format.name(), "int8_block64");
  EXPECT_EQ(format.block(), 64);
  EXPECT_EQ(format.scale_bytes(), 4);
  EXPECT_EQ(format.scale_layout(), ScaleLayout::row_major);
  EXPECT_EQ(format.payload_bytes(96), 96u);
  EXPECT_EQ(scales_per_row(format, 96), 2);
  EXPECT_EQ(message_bytes(format, 96), 112u);
  EXPECT_TRUE(any_format<Int8Block64>() == format);
  EXPECT_FALSE(format == format_named("bf16"));
}

TEST(UserFormat, CarriesRowsWithinHalfAStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const AnyFormat format = any_format<Int8Block64>();
  for (const int hidden : {32, 64, 96, 2880}) {
    test::TypedRow row;
    row.dtype = DType::f32;
    for (int column = 0; column < hidden; ++column) row.values.push_back(normal(random));
    row.floats = row.values;
    const test::Encoded encoded = test::encode(format, row.input(), hidden, 1.0f);
    EXPECT_EQ(encoded.non_finite, 0);
    const std::vector<float> back = decoded(format, encoded, hidden);
    for (std::size_t column = 0; column < back.size(); ++column) {
      float scale;
      std::memcpy(&scale, encoded.scales.data() + column / 64 * 4, 4);
      EXPECT_LE(std::fabs(back[column] - row.values[column]), scale * 0.501f) << "column " << column;
    }
  }
}

TEST(UserFormat, MarksABlockThatIsNotFinite) {
  test::TypedRow row;
  row.dtype = DType::f32;
  row.values.resize(96);
  std::iota(row.values.begin(), row.values.end(), -48.0f);
  row.values[70] = std::numeric_limits<float>::quiet_NaN();
  row.floats = row.values;
  const test::Encoded encoded = test::encode(any_format<Int8Block64>(), row.input(), 96, 1.0f);
  EXPECT_EQ(encoded.non_finite, 1);
  const std::vector<float> back = decoded(any_format<Int8Block64>(), encoded, 96);
  EXPECT_FLOAT_EQ(back[0], -48.0f);
  for (std::size_t column = 64; column < 96; ++column) EXPECT_TRUE(std::isnan(back[column]));
}

TEST(UserFormat, TheGuideShowsTheCodeThatIsTestedHere) {
  const std::string guide = text_of("docs/adding-a-format.md");
  EXPECT_NE(guide.find(text_of("examples/int8_block64.h")), std::string::npos)
      << "docs/adding-a-format.md no longer holds examples/int8_block64.h word for word";
}

TEST(FormatNamed, KnowsEveryFormatAndNamesThemWhenAskedForAnother) {
  for (const AnyFormat& format : all_formats()) EXPECT_TRUE(format_named(format.name()) == format);
  try {
    format_named("fp3");
    FAIL() << "fp3 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    const std::string message = error.what();
    EXPECT_NE(message.find("'fp3'"), std::string::npos) << message;
    for (const AnyFormat& format : all_formats()) EXPECT_NE(message.find(format.name()), std::string::npos) << message;
  }
}

TEST(Formats, HaveTheLayoutsOfTheTable) {
  struct Wanted {
    const char* name;
    int block, scale_bytes, alignment;
    ScaleLayout layout;
    std::size_t payload_of_2880, message_of_7168;
  };
  const Wanted wanted[] = {{"bf16", 0, 0, 1, ScaleLayout::none, 5760, 14336},
                           {"fp8_block128", 128, 4, 4, ScaleLayout::transposed, 2880, 7392},
                           {"fp8_block128_ue8m0", 128, 1, 1, ScaleLayout::row_major, 2880, 7232},
                           {"mxfp8", 32, 1, 1, ScaleLayout::row_major, 2880, 7392},
                           {"mxfp6_e2m3", 32, 1, 1, ScaleLayout::row_major, 2160, 5600},
                           {"mxfp6_e3m2", 32, 1, 1, ScaleLayout::row_major, 2160, 5600},
                           {"mxfp4", 32, 1, 1, ScaleLayout::row_major, 1440, 3808},
                           {"nvfp4", 16, 1, 1, ScaleLayout::tiled, 1440, 4032}};
  ASSERT_EQ(all_formats().size(), std::size(wanted));
  for (std::size_t i = 0; i < std::size(wanted); ++i) {
    const Wanted& want = wanted[i];
    const AnyFormat format = all_formats()[i];
    EXPECT_STREQ(format.name(), want.name);
    EXPECT_EQ(format.block(), want.block) << want.name;
    EXPECT_EQ(format.scale_bytes(), want.scale_bytes) << want.name;
    EXPECT_EQ(format.alignment(), want.alignment) << want.name;
    EXPECT_EQ(format.scale_layout(), want.layout) << want.name;
    EXPECT_EQ(format.payload_bytes(2880), want.payload_of_2880) << want.name;
    EXPECT_EQ(message_bytes(format, 7168), want.message_of_7168) << want.name;
  }
}

}  // namespace
}  // namespace ferry
