// The checks that GPU results go through see what they are for.
#include "support/activation_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ferry::test {
namespace {

ActivationCase made(const char* format) {
  ActivationShape shape;
  shape.inter = 288;
  ActivationCase one(format_named(format), shape, 5);
  one.run();
  return one;
}

TEST(ActivationChecks, TheSameIsAlike) {
  for (const AnyFormat& format : all_formats()) {
    const ActivationCase one = made(format.name());
    EXPECT_EQ(first_unlike(one, one), "");
    EXPECT_EQ(first_far_from_oracle(one), "");
  }
}

// One byte with all bits the other way round.
TEST(ActivationChecks, AValueThatIsOffIsFound) {
  for (const AnyFormat& format : all_formats()) {
    const ActivationCase want = made(format.name());
    ActivationCase got = want;
    auto* const bytes = reinterpret_cast<std::uint8_t*>(got.payload.data());
    bytes[7 * format.payload_bytes(288) + 8] ^= 0xff;
    EXPECT_NE(first_unlike(got, want), "") << format.name();
    EXPECT_NE(first_far_from_oracle(got), "") << format.name();
  }
}

TEST(ActivationChecks, ANanInPlaceOfANumberIsFound) {
  const ActivationCase want = made("bf16");
  ActivationCase got = want;
  got.payload[17] = 0x7fff;
  EXPECT_NE(first_unlike(got, want), "");
  EXPECT_NE(first_unlike(want, got), "");
}

TEST(ActivationChecks, BytesThatNoRowOwnsAreCompared) {
  for (const AnyFormat& format : all_formats()) {
    const ActivationCase want = made(format.name());
    ActivationCase got = want;
    got.payload.back() ^= 1;
    EXPECT_NE(first_unlike(got, want), "") << format.name();
    if (format.block() == 0) continue;
    got = want;
    got.scales.back() ^= 1;
    EXPECT_NE(first_unlike(got, want), "") << format.name();
  }
}

// Each value within a step, but more of them than rounding explains.
TEST(ActivationChecks, ManyValuesThatAreAStepOffAreFound) {
  const ActivationCase want = made("bf16");
  ActivationCase got = want;
  for (std::size_t i = 0; i < want.rows() * 288; i += 20) got.payload[i] ^= 1;
  EXPECT_NE(first_unlike(got, want), "");
}

// Every block with the next scale, and codes for the same values as near as may be.
TEST(ActivationChecks, ManyScalesThatAreAStepOffAreFound) {
  const ActivationCase want = made("mxfp8");
  ActivationCase got = want;
  auto* const scales = reinterpret_cast<std::uint8_t*>(got.scales.data());
  auto* const codes = reinterpret_cast<std::uint8_t*>(got.payload.data());
  for (std::size_t i = 0; i < want.rows() * 9; ++i) ++scales[i];
  for (std::size_t i = 0; i < want.rows() * 288; ++i)
    if ((codes[i] & 0x7f) >= 0x10) codes[i] -= 8;
  EXPECT_NE(first_unlike(got, want), "");
}

}  // namespace
}  // namespace ferry::test
