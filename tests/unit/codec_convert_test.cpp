// Conversions of 16 columns at a time, or 8, give the codes of Element::encode, for every bf16 value and the
// multipliers of every scale that matters. The same text that a GPU runs, with its instructions in software (tests/gpu
// has them).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ferry/detail/formats/format_list.h"

namespace ferry::codec {
namespace {

template <class Element, Conversion kConversion, int kColumns>
void expect_codes_of(const std::uint32_t (&bits)[kColumns], float multiplier) {
  std::uint32_t words[kWordsAtOnce<Element, kColumns> + 1] = {};
  auto& packed = reinterpret_cast<std::uint32_t(&)[kWordsAtOnce<Element, kColumns>]>(words);
  Pack<Element, kConversion>::run(bits, multiplier, packed);
  for (int i = 0; i < kColumns; ++i) {
    const int at = i * Element::kBits;
    const std::uint64_t pair = std::uint64_t{words[at / 32 + 1]} << 32 | words[at / 32];
    const auto code = static_cast<std::uint32_t>(pair >> (at % 32)) & ((1u << Element::kBits) - 1u);
    ASSERT_EQ(code, Element::encode(bits[i], multiplier))
        << std::hexfloat << float_of(bits[i]) << " times " << multiplier << " as column " << i;
  }
}

// Every bf16 that times multiplier is below `limit`, and values around it that bf16 does not have.
template <class Element, Conversion kConversion, int kColumns = 16>
void expect_all_codes(float multiplier, float limit) {
  std::uint32_t bits[kColumns] = {};
  int have = 0;
  for (std::uint32_t bf16 = 0; bf16 < 0x10000u; ++bf16) {
    for (const std::uint32_t off : {0u, 1u, 0xffffu}) {
      const std::uint32_t value = bf16 << 16 | off;
      const bool finite = (value & kMagnitudeMask) < kInfinityBits;
      bits[have % kColumns] =
          finite && std::fabs(float_of(value)) * multiplier < limit ? value : value & ~kMagnitudeMask;
      if (++have % kColumns != 0) continue;
      expect_codes_of<Element, kConversion>(bits, multiplier);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class Element>
void expect_small_element(float first_too_large) {
  for (int power = -126; power <= 127; power += power < -110 || power > 110 ? 1 : 7) {
    const float multiplier = std::ldexp(1.0f, power);
    expect_all_codes<Element, Conversion::by_byte_floats>(multiplier, first_too_large);
  }
}

TEST(CodecConvert, ByteFloatsGiveE4m3) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float multiplier : {0x1p-126f, 0x1p-9f, 0.37f, 1.0f, 448.0f / 3.1f, 4.48e6f, 0x1p127f}) {
    expect_all_codes<E4m3, Conversion::by_byte_floats>(multiplier, infinity);
    expect_all_codes<E4m3, Conversion::by_byte_floats, 8>(multiplier, infinity);
    expect_all_codes<E4m3, Conversion::by_column, 8>(multiplier, infinity);
  }
}
TEST(CodecConvert, ByteFloatsGiveE2m3) { expect_small_element<E2m3>(7.75f); }
TEST(CodecConvert, ByteFloatsGiveE3m2) { expect_small_element<E3m2>(30.0f); }
TEST(CodecConvert, ByteFloatsGiveE2m1) {
  expect_small_element<E2m1>(7.0f);
  for (const float multiplier : {0.0f, 0x1.8p-99f, 0.37f, 1.0f / 3.0f, 5.0f / 3.5f, 1234.5f, 0x1.fp99f})
    expect_all_codes<E2m1, Conversion::by_byte_floats>(multiplier, 7.0f);
}

// Where a block does not fit, or times a power of two the multiplier is not exact, columns are multiplied and cut off
// first. `scale` brings columns to where they have codes other than 0.
void expect_cut_off(float multiplier, float scale) {
  std::uint32_t bits[16];
  std::uint32_t amax = 0;
  for (int i = 0; i < 16; ++i) {
    bits[i] = bits_of((i % 3 == 0 ? -1.75f : 0.37f) * static_cast<float>(i) * scale);
    amax = larger(amax, bits[i] & kMagnitudeMask);
  }
  const bool moderate = multiplier >= 0x1p-100f && multiplier <= 0x1p100f;
  std::uint32_t words[2];
  pack_columns<E2m1, false, Conversion::by_byte_floats>(bits, amax, multiplier, moderate, words);
  std::uint32_t any = 0;
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t code = words[i / 8] >> (4 * (i % 8)) & 15u;
    EXPECT_EQ(code, E2m1::encode(bits[i], multiplier)) << multiplier << ' ' << i;
    any |= code & 7u;
  }
  EXPECT_NE(any, 0u) << multiplier;
}

TEST(CodecConvert, BlocksThatDoNotFitAreCutOff) {
  for (const float multiplier : {1.0f, 1e30f, std::numeric_limits<float>::infinity()}) expect_cut_off(multiplier, 1.0f);
}
TEST(CodecConvert, MultipliersFarFromOneStayExact) {
  std::uint32_t mantissa = 0x123456u;
  for (int turn = 0; turn < 3000; ++turn) {
    mantissa = (mantissa * 1664525u + 1013904223u) & 0x7fffffu;
    expect_cut_off(float_of(mantissa | 1u << 23), 0x1.2p123f);  // 2^-126
    expect_cut_off(float_of(mantissa >> 2 | 1u << 20), 0x1.2p123f);
    expect_cut_off(float_of(mantissa | 250u << 23), 0x1p-127f);
  }
}

}  // namespace
}  // namespace ferry::codec
