// The formats against reference vectors that another implementation made, byte for byte.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/formats/row_scale.h"
#include "ferry/token_format.h"
#include "support/golden.h"

namespace ferry {
namespace {

struct GoldenCase {
  const char* format;
  const char* files;
  float input_scale;

  friend std::ostream& operator<<(std::ostream& out, const GoldenCase& one) { return out << one.files; }
};

constexpr GoldenCase kCases[] = {
    {"fp8_block128", "fp8_block128", 1.0f},
    {"fp8_block128_ue8m0", "fp8_block128_ue8m0", 1.0f},
    {"mxfp8", "mxfp8", 1.0f},
    {"mxfp6_e2m3", "mxfp6_e2m3", 1.0f},
    {"mxfp6_e3m2", "mxfp6_e3m2", 1.0f},
    {"mxfp4", "mxfp4", 1.0f},
    {"nvfp4", "nvfp4_input_scale_1", 1.0f},
    {"nvfp4", "nvfp4_input_scale_37.5", 37.5f},
};

class GoldenRows : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenRows, EncodeToTheSameBytes) {
  const GoldenCase& golden = GetParam();
  const AnyFormat format = format_named(golden.format);
  const test::GoldenArray rows = test::read_golden("rows_bf16_bits");
  const test::GoldenArray payload = test::read_golden(std::string(golden.files) + "_payload");
  const test::GoldenArray scales = test::read_golden(std::string(golden.files) + "_scales");
  const int num_rows = rows.shape.at(0);
  const int hidden = rows.shape.at(1);
  const std::size_t payload_bytes = format.payload_bytes(hidden);
  const std::size_t scale_bytes =
      static_cast<std::size_t>(scales_per_row(format, hidden)) * static_cast<std::size_t>(format.scale_bytes());
  ASSERT_EQ(payload.bytes.size(), payload_bytes * static_cast<std::size_t>(num_rows));
  ASSERT_EQ(scales.bytes.size(), scale_bytes * static_cast<std::size_t>(num_rows));

  for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
    alignas(16) std::byte got_payload[2048];
    alignas(16) std::byte got_scales[2048];
    const InputRow input{rows.bytes.data() + row * static_cast<std::size_t>(hidden) * 2, DType::bf16};
    EXPECT_EQ(format.encode(SerialGroup{}, input, hidden, golden.input_scale, got_payload, got_scales), 0);
    for (std::size_t i = 0; i < payload_bytes; ++i)
      ASSERT_EQ(static_cast<int>(got_payload[i]), payload.bytes[row * payload_bytes + i] & 255)
          << "payload byte " << i << " of row " << row;
    for (std::size_t i = 0; i < scale_bytes; ++i)
      ASSERT_EQ(static_cast<int>(got_scales[i]), scales.bytes[row * scale_bytes + i] & 255)
          << "scale byte " << i << " of row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats, GoldenRows, testing::ValuesIn(kCases), [](const auto& test) {
  std::string name = test.param.files;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

// nvfp4 with a global scale for each row (ExchangeOptions::dynamic_scales).
TEST(GoldenRowScales, GiveTheSameBytes) {
  const AnyFormat format = format_named("nvfp4");
  const test::GoldenArray rows = test::read_golden("rows_bf16_bits");
  const test::GoldenArray payload = test::read_golden("nvfp4_dynamic_payload");
  const test::GoldenArray scales = test::read_golden("nvfp4_dynamic_scales");
  const std::vector<float> inverse = test::read_golden("nvfp4_dynamic_global_scales").as<float>();
  const int hidden = rows.shape.at(1);
  ASSERT_EQ(inverse.size(), static_cast<std::size_t>(rows.shape.at(0)));
  for (std::size_t row = 0; row < inverse.size(); ++row) {
    std::vector<std::byte> got_payload(format.payload_bytes(hidden));
    std::vector<std::byte> got_scales(static_cast<std::size_t>(scales_per_row(format, hidden)));
    const InputRow input{rows.bytes.data() + row * static_cast<std::size_t>(hidden) * 2, DType::bf16};
    const float scale = row_scale_of(input, hidden);
    EXPECT_EQ(1.0f / scale, inverse[row]) << row;
    format.encode(SerialGroup{}, input, hidden, scale, got_payload.data(), got_scales.data());
    for (std::size_t i = 0; i < got_payload.size(); ++i)
      ASSERT_EQ(static_cast<int>(got_payload[i]), payload.bytes[row * got_payload.size() + i] & 255) << row;
    for (std::size_t i = 0; i < got_scales.size(); ++i)
      ASSERT_EQ(static_cast<int>(got_scales[i]), scales.bytes[row * got_scales.size() + i] & 255) << row;
  }
}

// Rows from which no scale can be made have 1.
TEST(RowScale, IsOneWhereThereIsNone) {
  float row[32] = {};
  const InputRow input{row, DType::f32};
  EXPECT_EQ(row_scale_of(input, 32), 1.0f);
  row[3] = -2.0f;
  EXPECT_EQ(row_scale_of(input, 32), 1344.0f);
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    row[31] = value;
    EXPECT_EQ(row_scale_of(input, 32), 1.0f);
  }
  row[3] = 0.0f;
  row[31] = 1e-42f;  // 2688 / 1e-42 is infinite
  EXPECT_EQ(row_scale_of(input, 32), 1.0f);
}

template <class Element>
void expect_element_codes(const char* files) {
  const std::vector<std::uint8_t> codes = test::read_golden(files).as<std::uint8_t>();
  ASSERT_EQ(codes.size(), 65536u);
  int checked = 0;
  for (std::uint32_t bf16 = 0; bf16 < 65536; ++bf16) {
    if ((bf16 & 0x7f80u) == 0x7f80u) continue;  // not finite: an element encoder never sees these
    ASSERT_EQ(Element::encode(bf16 << 16, 1.0f), codes[bf16]) << files << " of bf16 bits " << bf16;
    ++checked;
  }
  EXPECT_EQ(checked, 65536 - 2 * 128);
}

TEST(GoldenElements, EveryBf16ValueHasItsCode) {
  expect_element_codes<codec::E4m3>("element_e4m3_of_bf16");
  expect_element_codes<codec::E2m1>("element_e2m1_of_bf16");
  expect_element_codes<codec::E2m3>("element_e2m3_of_bf16");
  expect_element_codes<codec::E3m2>("element_e3m2_of_bf16");
}

}  // namespace
}  // namespace ferry
