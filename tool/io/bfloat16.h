// bf16 as the tool needs it: float32 rounded to nearest even, and back. The library's codecs are not used here, so that
// `--check` does not depend on what it checks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ferry::app {

using Bf16 = std::uint16_t;  // the bits

constexpr Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const std::uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<Bf16>((is_nan ? bits | 0x00400000u : rounded) >> 16);
}

constexpr float from_bf16(Bf16 bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

inline void to_bf16(const float* in, Bf16* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = to_bf16(in[i]);
}
inline void from_bf16(const Bf16* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = from_bf16(in[i]);
}
// The float32 values of the nearest bf16 values.
inline void round_to_bf16(const float* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = from_bf16(to_bf16(in[i]));
}

}  // namespace ferry::app
