// Formats from outside the library, as a user's could be: Int8Block64 in other layouts, and one that encodes columns.
#pragma once

#include "examples/int8_block64.h"

namespace ferry::test {

// Scales lie column by column.
struct Int8Transposed : Int8Block64 {
  FERRY_HD static constexpr const char* name() { return "int8_transposed"; }
  FERRY_HD static constexpr ScaleLayout scale_layout() { return ScaleLayout::transposed; }
  FERRY_HD static constexpr int alignment() { return 4; }
};
static_assert(TokenFormat<Int8Transposed> && !ColumnFormat<Int8Transposed>);

// Scales lie in tiles, of 4 bytes each.
struct Int8Tiled : Int8Block64 {
  FERRY_HD static constexpr const char* name() { return "int8_tiled"; }
  FERRY_HD static constexpr ScaleLayout scale_layout() { return ScaleLayout::tiled; }
};
static_assert(TokenFormat<Int8Tiled> && !ColumnFormat<Int8Tiled>);

// The same bytes as Int8Block64, encoded from registers and decoded into them.
struct Int8Columns : Int8Block64 {
  FERRY_HD static constexpr const char* name() { return "int8_columns"; }
  using Stored = float;

  template <int kColumns>
  struct Encoded {
    std::uint32_t words[kColumns / 4] = {};
    float scale = 0;
  };
  template <int kLanes, int kColumns, ThreadGroup G>
  FERRY_HD static Encoded<kColumns> encode_columns(const G& group, const std::uint32_t (&values)[kColumns], float,
                                                   bool exist = true) {
    std::uint32_t largest = 0;  // magnitudes of float32 compare as their bits do
    for (const std::uint32_t value : values)
      if ((value & 0x7fffffffu) > largest) largest = value & 0x7fffffffu;
    const std::uint32_t amax = group.template max_over<kLanes>(exist ? largest : 0u);
    Encoded<kColumns> encoded;
    encoded.scale = amax < 0x7f800000u ? __builtin_bit_cast(float, amax) / 127.0f : __builtin_nanf("");
    for (int i = 0; i < kColumns && encoded.scale > 0; ++i)
      encoded.words[i / 4] |= code_of(__builtin_bit_cast(float, values[i]) / encoded.scale) << (8 * (i % 4));
    return encoded;
  }
  FERRY_HD static void decode_columns(const std::byte* payload, const std::byte* scales, int column, float,
                                      float (&values)[8]) {
    const float scale = reinterpret_cast<const float*>(scales)[column / block()];
    for (int i = 0; i < 8; ++i) values[i] = static_cast<float>(static_cast<signed char>(payload[column + i])) * scale;
  }

 private:
  FERRY_HD static std::uint32_t code_of(float value) {
    const float whole = value + 12582912.0f - 12582912.0f;
    const float limited = whole > 127.0f ? 127.0f : whole < -127.0f ? -127.0f : whole;
    return static_cast<std::uint32_t>(static_cast<int>(limited)) & 0xffu;
  }
};
static_assert(ColumnFormat<Int8Columns> && DecodesColumns<Int8Columns>);

}  // namespace ferry::test
