// Int8Block64: a token format made with the public headers alone. One signed byte per column and one float32 scale
// for every 64 columns: scale = amax / 127, code = the whole number nearest to x / scale.
#pragma once

#include <ferry/token_format.h>

class Int8Block64 {
 public:
  FERRY_HD static constexpr const char* name() { return "int8_block64"; }
  FERRY_HD static constexpr int block() { return 64; }
  FERRY_HD static constexpr int scale_bytes() { return 4; }
  FERRY_HD static constexpr ferry::ScaleLayout scale_layout() { return ferry::ScaleLayout::row_major; }
  FERRY_HD static constexpr int alignment() { return 1; }
  FERRY_HD static constexpr std::size_t payload_bytes(int hidden) { return static_cast<std::size_t>(hidden); }

  template <ferry::ThreadGroup G>
  FERRY_HD int encode(const G& group, ferry::InputRow row, int hidden, float, std::byte* payload,
                      std::byte* scales) const {
    int non_finite = 0;
    // Each thread takes whole blocks, so threads never need to talk to each other.
    for (int begin = group.thread() * block(); begin < hidden; begin += group.size() * block()) {
      const int end = begin + block() < hidden ? begin + block() : hidden;  // a row's last block may be short
      float amax = 0;
      bool finite = true;
      for (int column = begin; column < end; ++column) {
        const float magnitude = magnitude_of(ferry::value_at(row, column));
        finite = finite && magnitude <= 3.40282347e38f;  // false for a NaN as well
        amax = magnitude > amax ? magnitude : amax;
      }
      const float scale = finite ? amax / 127.0f : __builtin_nanf("");
      for (int column = begin; column < end; ++column)
        payload[column] = scale > 0 ? code_of(ferry::value_at(row, column) / scale) : std::byte{0};
      reinterpret_cast<float*>(scales)[begin / block()] = scale;
      non_finite += finite ? 0 : 1;
    }
    return non_finite;
  }

  template <ferry::ThreadGroup G>
  FERRY_HD void decode(const G& group, const std::byte* payload, const std::byte* scales, int hidden, float,
                       float* out) const {
    for (int column = group.thread(); column < hidden; column += group.size()) {
      const auto code = static_cast<float>(static_cast<signed char>(payload[column]));
      out[column] = code * reinterpret_cast<const float*>(scales)[column / block()];
    }
  }

 private:
  FERRY_HD static constexpr float magnitude_of(float value) { return value < 0 ? -value : value; }

  // Nearest whole number, ties to even: adding 1.5 * 2^23 leaves no bits for a fraction.
  FERRY_HD static std::byte code_of(float value) {
    const float whole = value + 12582912.0f - 12582912.0f;
    const float limited = whole > 127.0f ? 127.0f : whole < -127.0f ? -127.0f : whole;
    return static_cast<std::byte>(static_cast<signed char>(limited));
  }
};
static_assert(ferry::TokenFormat<Int8Block64>);
