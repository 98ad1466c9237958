// Rows for the codec tests, and what an encoder under test made of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/formats/formats.h"
#include "ferry/token_format.h"

namespace ferry::test {

// A row in one of the input types, and the float32 values of its columns.
struct TypedRow {
  DType dtype = DType::bf16;
  std::vector<std::uint16_t> halves;
  std::vector<float> floats;
  std::vector<float> values;

  InputRow input() const {
    return {dtype == DType::f32 ? static_cast<const void*>(floats.data()) : halves.data(), dtype};
  }
  int hidden() const { return static_cast<int>(values.size()); }
};

// Finite columns of many kinds: ordinary, any bits, tiny, huge, zeros of both signs, ties.
TypedRow random_row(DType dtype, int hidden, std::mt19937& random);
// One more column with these 16 bits; for f32 they are the upper half.
void append(TypedRow& row, std::uint16_t half, std::mt19937& random);

struct Encoded {
  std::vector<std::uint8_t> payload;
  std::vector<std::uint8_t> scales;
  int non_finite = 0;
  friend bool operator==(const Encoded&, const Encoded&) = default;
};

inline constexpr std::uint8_t kUntouchedByte = 0xa5;

// Encodes into memory with a guard behind it: a write past the end shows in the size of what comes back.
inline Encoded encode(const AnyFormat& format, InputRow row, int hidden, float input_scale) {
  constexpr std::size_t kGuard = 64;
  const std::size_t payload_bytes = format.payload_bytes(hidden);
  const std::size_t scale_bytes =
      static_cast<std::size_t>(scales_per_row(format, hidden)) * static_cast<std::size_t>(format.scale_bytes());
  struct alignas(16) Line {
    std::uint8_t bytes[16];
  };
  const auto lines = [](std::size_t bytes) { return std::vector<Line>((bytes + kGuard) / 16 + 1); };
  std::vector<Line> payload = lines(payload_bytes);
  std::vector<Line> scales = lines(scale_bytes);
  std::memset(payload.data(), kUntouchedByte, payload.size() * 16);
  std::memset(scales.data(), kUntouchedByte, scales.size() * 16);
  Encoded out;
  out.non_finite = format.encode(SerialGroup{}, row, hidden, input_scale, reinterpret_cast<std::byte*>(payload.data()),
                                 reinterpret_cast<std::byte*>(scales.data()));
  // The bytes asked for, and any that were written behind them.
  const auto take = [](const std::vector<Line>& from, std::size_t bytes) {
    std::vector<std::uint8_t> taken(from.size() * 16);
    std::memcpy(taken.data(), from.data(), taken.size());
    while (taken.size() > bytes && taken.back() == kUntouchedByte) taken.pop_back();
    return taken;
  };
  out.payload = take(payload, payload_bytes);
  out.scales = take(scales, scale_bytes);
  return out;
}

// Formats at every instruction set of this machine.
inline std::vector<AnyFormat> formats_everywhere() {
  std::vector<AnyFormat> formats;
  for (const cpu::SimdLevel level : cpu::kSimdLevels)
    if (cpu::supports(level))
      for (const AnyFormat& format : cpu::formats_at(level)) formats.push_back(format);
  return formats;
}

}  // namespace ferry::test
