// decode_columns, by which a GPU decodes eight columns of a result, beside decode.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "ferry/detail/formats/format_list.h"

namespace ferry {
namespace {

constexpr int kHidden = 256;

// Magnitudes that a quotient rounds fast, and those that it does not.
constexpr float kInputScales[] = {1.0f, 37.5f, 0x1.8p-3f, 0x1.234567p-70f, 0x1.fffffep+79f, 0x1.3p-100f, 0x1.7p+110f};

template <class F>
void expect_the_values_of_decode() {
  std::mt19937 random(1);
  std::vector<std::byte> payload(F{}.payload_bytes(kHidden));
  std::vector<std::uint32_t> scales(kHidden);  // aligned for each type of scale
  auto* const scale_bytes = reinterpret_cast<std::byte*>(scales.data());
  for (int round = 0; round < 200; ++round) {
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    for (int i = 0; i < kHidden; ++i) {
      const float scale = std::bit_cast<float>(0x3D800000u + static_cast<std::uint32_t>(random() & 0x3FFFFFFu));
      if (F{}.scale_bytes() == 4)
        scales[static_cast<std::size_t>(i)] = std::bit_cast<std::uint32_t>(scale);
      else
        scale_bytes[i] = static_cast<std::byte>(random());
    }
    const float input_scale = kInputScales[static_cast<std::size_t>(round) % std::size(kInputScales)];
    std::vector<float> expected(kHidden);
    F{}.decode(SerialGroup{}, payload.data(), scale_bytes, kHidden, input_scale, expected.data());
    for (int column = 0; column < kHidden; column += 8) {
      float values[8];
      F::decode_columns(payload.data(), scale_bytes, column, input_scale, values);
      for (int i = 0; i < 8; ++i) {
        const float wanted = expected[static_cast<std::size_t>(column + i)];
        if (wanted != wanted)
          EXPECT_NE(values[i], values[i]);
        else
          ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(wanted))
              << F{}.name() << ", column " << column + i << ", input_scale " << input_scale;
      }
    }
  }
}

// What a sum of results adds: a zero may have either sign.
TEST(CodecColumns, AddendsAreTheValuesOfDecode) {
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    alignas(16) std::byte payload[8];
    std::byte scale[4];
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    scale[0] = static_cast<std::byte>(random());
    const auto exponent = static_cast<std::uint32_t>(48 + random() % 159);  // of a moderate scale
    const float input_scale = std::bit_cast<float>(exponent << 23 | static_cast<std::uint32_t>(random() & 0x7FFFFFu));
    float expected[8], addends[8];
    const auto loaded = Nvfp4::load_columns(payload, scale, 0);
    Nvfp4::decode_loaded(loaded, input_scale, expected);
    Nvfp4::decode_addends(loaded, Nvfp4::divisor_of(input_scale), addends);
    for (int i = 0; i < 8; ++i)
      if (std::isnan(expected[i]))
        EXPECT_TRUE(std::isnan(addends[i]));
      else
        ASSERT_EQ(addends[i], expected[i]) << "input_scale " << input_scale;
  }
}

TEST(CodecColumns, GiveTheValuesOfDecode) {
  int formats = 0;
  Formats::for_each([&]<class F>(std::type_identity<F>) {
    if constexpr (DecodesColumns<F>) {
      expect_the_values_of_decode<F>();
      ++formats;
    }
  });
  EXPECT_EQ(formats, 8);
}

}  // namespace
}  // namespace ferry
