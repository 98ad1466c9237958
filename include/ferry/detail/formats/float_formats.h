// F16 and F32: formats without scales, in which results may travel. Rounding is to nearest, ties to even; what float16
// cannot hold becomes an infinity, which counts as non-finite only if the value was.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/formats/rounded.h"
#include "ferry/token_format.h"

namespace ferry {

namespace codec {

// A format whose code of a column is a float of type Bits.
template <class Bits>
struct FloatFormat {
  static constexpr bool kIsF32 = sizeof(Bits) == 4;
  using Code = Bits;
  FERRY_HD static constexpr const char* name() { return kIsF32 ? "f32" : "f16"; }
  FERRY_HD static constexpr int block() { return 0; }
  FERRY_HD static constexpr int scale_bytes() { return 0; }
  FERRY_HD static constexpr ScaleLayout scale_layout() { return ScaleLayout::none; }
  FERRY_HD static constexpr int alignment() { return 1; }
  static constexpr bool takes_input_scale() { return false; }
  FERRY_HD static constexpr std::size_t payload_bytes(int hidden) {
    return sizeof(Bits) * static_cast<std::size_t>(hidden);
  }
  // One column, as float32 bits, and back.
  FERRY_HD static Code encode_column(std::uint32_t bits) {
    if constexpr (kIsF32)
      return bits;
    else
      return f16_of(bits);
  }
  FERRY_HD static std::uint32_t decode_column(Code code) {
    if constexpr (kIsF32)
      return code;
    else
      return float_bits_of_f16(code);
  }

  template <ThreadGroup G>
  FERRY_HD int encode(const G& group, InputRow row, int hidden, float, std::byte* payload, std::byte*) const {
    bool found = false;
    auto* const codes = reinterpret_cast<Bits*>(payload);
    for (int column = group.thread(); column < hidden; column += group.size()) {
      const std::uint32_t bits = bits_of(value_at(row, column));
      found = found || (bits & 0x7fffffffu) >= 0x7f800000u;
      codes[column] = encode_column(bits);
    }
    const bool counts = group.thread() % G::kWidth == 0;
    return group.template max_over<G::kWidth>(found ? 1u : 0u) != 0 && counts ? 1 : 0;
  }
  template <ThreadGroup G>
  FERRY_HD void decode(const G& group, const std::byte* payload, const std::byte*, int hidden, float,
                       float* out) const {
    const InputRow row{payload, kIsF32 ? DType::f32 : DType::f16};
    for (int column = group.thread(); column < hidden; column += group.size()) out[column] = value_at(row, column);
  }
};

}  // namespace codec

using F16 = codec::FloatFormat<std::uint16_t>;
using F32 = codec::FloatFormat<std::uint32_t>;
static_assert(TokenFormat<F16> && TokenFormat<F32>);

}  // namespace ferry
