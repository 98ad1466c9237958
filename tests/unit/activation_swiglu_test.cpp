// SwiGLU against a float64 oracle: bf16 within one ulp, encoded rows within one step of the element's grid at the
// block's scale; and which rows and scales a call touches.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "examples/int8_block64.h"
#include "ferry/detail/activation/swiglu_math.h"
#include "support/activation_checks.h"

namespace ferry {
namespace {

using test::ActivationCase;
using test::ActivationShape;

std::vector<SwigluOptions> variants() {
  std::vector<SwigluOptions> all;
  for (const bool interleaved : {false, true})
    for (const bool clamped : {false, true}) {
      SwigluOptions options;
      options.interleaved = interleaved;
      options.clamped = clamped;
      all.push_back(options);
    }
  return all;
}

TEST(Sigmoid, IsNearTheExactOne) {
  double worst = 0;
  for (float x = -87.0f; x < 120.0f; x += 0.00371f) {
    const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    worst = std::max(worst, std::fabs(activation::sigmoid(x) / exact - 1.0) - std::fabs(x) * 0x1p-26);
  }
  EXPECT_LT(worst, 0x1p-21);
  for (float x = 87.0f; x < 120.0f; x += 0.0137f)  // subnormal, then zero
    EXPECT_NEAR(activation::sigmoid(-x), std::exp(-static_cast<double>(x)), 0x1p-149 + 0x1p-19 * std::exp(-87.0));
  EXPECT_EQ(activation::sigmoid(0.0f), 0.5f);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(activation::sigmoid(infinity), 1.0f);
  EXPECT_EQ(activation::sigmoid(-infinity), 0.0f);
  EXPECT_EQ(activation::sigmoid(-std::numeric_limits<float>::max()), 0.0f);
  EXPECT_EQ(activation::sigmoid(std::numeric_limits<float>::max()), 1.0f);
}

// What a GPU's thread takes at a time, for every bf16 as a gate and as an up.
template <int kCount, bool kInterleaved, bool kClamped>
void expect_columns_of_the_row() {
  using Columns = activation::SwigluColumns<codec::Bf16Input, kInterleaved, kCount>;
  std::vector<std::uint16_t> row(2 * 65536);
  for (std::size_t i = 0; i < 65536; ++i) {
    row[kInterleaved ? 2 * i : i] = static_cast<std::uint16_t>(i);
    row[kInterleaved ? 2 * i + 1 : 65536 + i] = static_cast<std::uint16_t>(i * 40503);
  }
  const activation::SwigluSource<codec::Bf16Input, kInterleaved, kClamped> source{row.data(), 65536, 1.702f, 7.0f};
  for (int column = 0; column < 65536; column += kCount) {
    std::uint32_t want[kCount];
    std::uint32_t got[kCount];
    source.template load<kCount>(column, kCount, want);
    typename Columns::Pairs pairs;
    Columns::fetch(row.data() + Columns::first_element(column), 65536, pairs);
    Columns::template activate<kClamped>(pairs, 1.702f, 7.0f, got);
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(codec::with_one_nan(got[i]), codec::with_one_nan(want[i])) << column + i;
  }
}
template <int kCount>
void expect_columns_of_every_row() {
  expect_columns_of_the_row<kCount, false, false>();
  expect_columns_of_the_row<kCount, false, true>();
  expect_columns_of_the_row<kCount, true, false>();
  expect_columns_of_the_row<kCount, true, true>();
}

TEST(SwigluColumns, AreThoseOfTheRow) {
  expect_columns_of_every_row<8>();
  expect_columns_of_every_row<16>();
}

TEST(Swiglu, EveryNanIsTheSame) {
  ActivationShape shape;
  ActivationCase one(format_named("bf16"), shape, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  one.set_gate_up(0, 0, nan, 1.0f);
  one.set_gate_up(0, 1, 1.0f, -nan);
  one.set_gate_up(0, 2, 0.0f, infinity);
  one.set_gate_up(0, 3, -infinity, 1.0f);
  one.run();
  for (std::size_t column = 0; column < 4; ++column) EXPECT_EQ(one.payload[column], 0x7fff) << column;
}

TEST(Swiglu, Bf16IsWithinOneUlp) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const SwigluOptions& options : variants()) {
      for (const int inter : {32, 96, 2880 / 10}) {
        ActivationShape shape;
        shape.dtype = dtype;
        shape.inter = inter;
        shape.options = options;
        ActivationCase one(format_named("bf16"), shape, 1);
        if (dtype != DType::f16) {
          constexpr float kGates[] = {0.0f,   -0.0f,  1e-30f, -1e-30f, 20.0f,   -20.0f, 87.0f,
                                      -87.0f, -88.5f, -95.0f, 300.0f,  -300.0f, 7.0f,   7.5f};
          for (std::size_t i = 0; i < std::size(kGates); ++i)
            one.set_gate_up(i, 2 * i, kGates[i], i % 2 ? -9.5f : 3.25f);
        }
        one.run();
        ASSERT_EQ(first_far_from_oracle(one), "") << to_string(dtype);
      }
    }
  }
}

TEST(Swiglu, EncodedRowsAreWithinOneStep) {
  for (const AnyFormat& format : all_formats()) {
    if (format.block() == 0) continue;
    for (SwigluOptions options : variants()) {
      for (const bool tiled : {false, true}) {
        if (tiled && std::string(format.name()) != "mxfp8" && std::string(format.name()) != "nvfp4") continue;
        options.tiled_scales = tiled;
        for (const int inter : {32, 160}) {  // 160 in blocks of 128: a short block
          ActivationShape shape;
          shape.inter = inter;
          shape.options = options;
          shape.dtype = inter == 32 ? DType::f32 : DType::bf16;
          ActivationCase one(format, shape, static_cast<unsigned>(inter));
          if (std::string(format.name()) == "nvfp4" && inter == 160) one.input_scales = {1.0f, 3.0f, 40.0f, 0.75f};
          one.run();
          ASSERT_EQ(first_far_from_oracle(one), "");
        }
      }
    }
  }
}

// The row's encoder sees the float32 value: the same bytes as encoding what one thread of plain code computes.
TEST(Swiglu, BytesAreThoseOfTheEncodedFloat32Row) {
  for (const AnyFormat& format : all_formats()) {
    ActivationShape shape;
    shape.inter = 2880 / 10;
    ActivationCase one(format, shape, 7);
    one.run();
    for (std::size_t row = 0; row < one.rows(); row += 13) {
      const activation::SwigluSource<codec::Bf16Input, false, false> source{
          one.halves.data() + row * 2 * static_cast<std::size_t>(shape.inter), shape.inter, 0, 0};
      std::vector<float> values;
      for (int column = 0; column < shape.inter; column += 32) {
        std::uint32_t bits[32];
        source.load<32>(column, 32, bits);
        for (const std::uint32_t value : bits) values.push_back(std::bit_cast<float>(value));
      }
      test::Encoded want = test::encode(format, InputRow{values.data(), DType::f32}, shape.inter, 1.0f);
      want.non_finite = 0;
      ASSERT_EQ(one.encoded_row(row), want) << format.name() << " row " << row;
    }
  }
}

TEST(Swiglu, TouchesTheRowsOfTheGroupsAndTheTailsOfTheirTilesOnly) {
  for (const AnyFormat& format : all_formats()) {
    for (const bool tiled : {false, true}) {
      if (tiled && std::string(format.name()) != "mxfp8") continue;
      ActivationShape shape;
      shape.inter = 96;  // 3 scales of 32, which tiles round up to 4
      shape.options.tiled_scales = tiled;
      ActivationCase one(format, shape, 9);
      std::vector<bool> mine(one.scales.size() * 4, false);  // scale bytes that the call writes
      const auto scale_bytes = static_cast<std::size_t>(format.scale_bytes());
      const auto per_row = static_cast<std::size_t>(scales_per_row(format, shape.inter));
      one.run();
      for (std::size_t row = 0; row < one.rows(); ++row)
        for (std::size_t s = 0; s < per_row * scale_bytes; ++s)
          mine[one.scale_index(row, s / scale_bytes) * scale_bytes + s % scale_bytes] = true;

      const auto* codes = reinterpret_cast<const std::uint8_t*>(one.payload.data());
      for (std::size_t i = one.rows() * format.payload_bytes(shape.inter); i < one.payload.size() * 2; ++i)
        ASSERT_EQ(codes[i], 0xa5) << format.name() << " payload byte " << i;
      const auto* stored = reinterpret_cast<const std::uint8_t*>(one.scales.data());
      // Groups of 5, 0, 135 and 1 rows take 1 + 0 + 2 + 1 tiles, one after the other; more tiles are not touched.
      const std::size_t written = one.tiled() ? std::size_t{4} * 128 * ((per_row + 3) / 4 * 4) : 0;
      for (std::size_t i = 0; i < one.scales.size() * 4; ++i)
        ASSERT_TRUE(mine[i] || stored[i] == (i < written ? 0 : 0xa5)) << format.name() << " scale byte " << i;
    }
  }
}

TEST(Swiglu, ANanIsNotHidden) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const AnyFormat& format : all_formats()) {
    for (const SwigluOptions& options : variants()) {
      ActivationShape shape;
      shape.options = options;
      shape.dtype = DType::f32;
      ActivationCase one(format, shape, 11);
      one.set_gate_up(3, 33, nan, 1.0f);
      one.set_gate_up(4, 95, 1.0f, nan);
      one.run();
      EXPECT_TRUE(std::isnan(one.decoded_row(3)[33])) << format.name();
      EXPECT_TRUE(std::isnan(one.decoded_row(4)[95])) << format.name();
      EXPECT_FALSE(std::isnan(one.decoded_row(2)[33])) << format.name();
    }
  }
}

TEST(Swiglu, TakesAFormatFromOutsideTheLibrary) {
  ActivationShape shape;
  ActivationCase one(any_format<Int8Block64>(), shape, 13);
  one.run();
  for (std::size_t row = 0; row < one.rows(); ++row) {
    const test::Encoded encoded = one.encoded_row(row);
    for (std::size_t column = 0; column < 96; ++column) {
      float scale;
      std::memcpy(&scale, encoded.scales.data() + column / 64 * 4, 4);
      ASSERT_NEAR(static_cast<signed char>(encoded.payload[column]) * scale, one.oracle(row, column), scale * 0.51);
    }
  }
}

TEST(Swiglu, NoRowsIsNothingToDo) {
  ActivationShape shape;
  shape.row_offsets = {0, 0, 0};
  ActivationCase one(format_named("nvfp4"), shape, 15);
  const std::vector<std::uint16_t> before = one.payload;
  one.run();
  EXPECT_EQ(one.payload, before);
}

}  // namespace
}  // namespace ferry
