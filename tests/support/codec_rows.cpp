#include "support/codec_rows.h"

#include "support/codec_oracle.h"

namespace ferry::test {
namespace {

// bf16 bits of many kinds: ordinary, any finite bits, tiny, huge, zeros of both signs, ties.
std::uint16_t random_bf16(std::mt19937& random, int kind) {
  auto bits = static_cast<std::uint32_t>(random());
  std::normal_distribution<float> normal;
  switch (kind) {
    case 0:
      return bf16_nearest(normal(random));
    case 1:
      bits &= 0xffffu;
      return static_cast<std::uint16_t>((bits & 0x7f80u) == 0x7f80u ? bits & 0x807fu : bits);
    case 2:
      return static_cast<std::uint16_t>(bits & 0x81ffu);
    case 3:
      return static_cast<std::uint16_t>((bits & 0x80ffu) | 0x7e00u);
    case 4:
      return static_cast<std::uint16_t>(bits & 0x8000u);
    default:
      return bf16_nearest(static_cast<float>(static_cast<int>(bits % 65) - 32) * 0.125f);
  }
}

}  // namespace

TypedRow random_row(DType dtype, int hidden, std::mt19937& random) {
  TypedRow row;
  row.dtype = dtype;
  int kind = 0;
  for (int column = 0; column < hidden; ++column) {
    if (column % 16 == 0 && random() % 2 == 0) kind = static_cast<int>(random() % 6);
    std::uint16_t half = random_bf16(random, kind);
    if (dtype == DType::f16 && (half & 0x7c00u) == 0x7c00u) half = static_cast<std::uint16_t>(half & 0x83ffu);
    append(row, half, random);
  }
  return row;
}

void append(TypedRow& row, std::uint16_t half, std::mt19937& random) {
  if (row.dtype == DType::f32) {
    // As bf16, with more mantissa below it.
    const std::uint32_t bits =
        std::uint32_t{half} << 16 | ((half & 0x7f80u) == 0x7f80u ? 0u : static_cast<std::uint32_t>(random() & 0xffffu));
    float value;
    std::memcpy(&value, &bits, 4);
    row.floats.push_back(value);
    row.values.push_back(value);
    return;
  }
  row.halves.push_back(half);
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  row.values.push_back(row.dtype == DType::f16 ? f16_value(half) : value);
}

}  // namespace ferry::test
