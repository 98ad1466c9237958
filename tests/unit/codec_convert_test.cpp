// Conversions of sixteen columns at a time give the codes of Element::encode, for every bf16 value and the multipliers
// of every scale that matters. The same text that a GPU runs, with its instructions in software (tests/gpu has them).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shared/codec/formats.h"

namespace ferry::codec {
namespace {

template <class Element, Conversion kConversion>
void expect_codes_of(const std::uint32_t (&bits)[16], float multiplier) {
  std::uint32_t words[kWordsAtOnce<Element> + 1] = {};
  auto& packed = reinterpret_cast<std::uint32_t(&)[kWordsAtOnce<Element>]>(words);
  Pack<Element, kConversion>::run(bits, multiplier, packed);
  for (int i = 0; i < 16; ++i) {
    const int at = i * Element::kBits;
    const std::uint64_t pair = std::uint64_t{words[at / 32 + 1]} << 32 | words[at / 32];
    const auto code = static_cast<std::uint32_t>(pair >> (at % 32)) & ((1u << Element::kBits) - 1u);
    ASSERT_EQ(code, Element::encode(bits[i], multiplier))
        << std::hexfloat << float_of(bits[i]) << " times " << multiplier << " as column " << i;
  }
}

// Every bf16 that times multiplier is below `limit`, and values around it that bf16 does not have.
template <class Element, Conversion kConversion>
void expect_all_codes(float multiplier, float limit) {
  std::uint32_t bits[16] = {};
  int have = 0;
  for (std::uint32_t bf16 = 0; bf16 < 0x10000u; ++bf16) {
    for (const std::uint32_t off : {0u, 1u, 0xffffu}) {
      const std::uint32_t value = bf16 << 16 | off;
      const bool finite = (value & kMagnitudeMask) < kInfinityBits;
      bits[have % 16] = finite && std::fabs(float_of(value)) * multiplier < limit ? value : value & ~kMagnitudeMask;
      if (++have % 16 != 0) continue;
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
  for (const float multiplier : {0x1p-126f, 0x1p-9f, 0.37f, 1.0f, 448.0f / 3.1f, 4.48e6f, 0x1p127f})
    expect_all_codes<E4m3, Conversion::by_byte_floats>(multiplier, infinity);
}
TEST(CodecConvert, ByteFloatsGiveE2m3) { expect_small_element<E2m3>(7.75f); }
TEST(CodecConvert, ByteFloatsGiveE3m2) { expect_small_element<E3m2>(30.0f); }
TEST(CodecConvert, ByteFloatsGiveE2m1) {
  expect_small_element<E2m1>(7.0f);
  for (const float multiplier : {0.0f, 0x1.8p-99f, 0.37f, 1.0f / 3.0f, 5.0f / 3.5f, 1234.5f, 0x1.fp99f})
    expect_all_codes<E2m1, Conversion::by_byte_floats>(multiplier, 7.0f);
}

// Where a block does not fit, the choice is the way that cuts off.
TEST(CodecConvert, BlocksThatDoNotFitAreCutOff) {
  std::uint32_t bits[16];
  for (const float multiplier : {1.0f, 1e30f, std::numeric_limits<float>::infinity(), 0x1p-120f}) {
    std::uint32_t amax = 0;
    for (int i = 0; i < 16; ++i) {
      bits[i] = bits_of(i % 3 == 0 ? -1.75f * static_cast<float>(i) : static_cast<float>(i));
      amax = larger(amax, bits[i] & kMagnitudeMask);
    }
    std::uint32_t words[2];
    pack_columns<E2m1, false, Conversion::by_byte_floats>(bits, amax, multiplier, words);
    for (int i = 0; i < 16; ++i)
      EXPECT_EQ(words[i / 8] >> (4 * (i % 8)) & 15u, E2m1::encode(bits[i], multiplier)) << multiplier << ' ' << i;
  }
}

}  // namespace
}  // namespace ferry::codec
