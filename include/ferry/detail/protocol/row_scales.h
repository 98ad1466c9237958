// The scales of rows at strides that the caller chose (DispatchOutput::row_scales).
#pragma once

#include <cstdint>

#include "ferry/detail/layout/scale_layout.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry {

// 2^(code - 127), as float32 bits; 255 is NaN. The smallest one is below the normal numbers.
FERRY_HD constexpr std::uint32_t power_of_two_bits(std::uint8_t code) {
  if (code == 255) return 0x7FC00000u;
  return code == 0 ? 0x00400000u : std::uint32_t{code} << 23;
}

// Four one-byte scales from `column` on, the first one lowest; 0 behind the last.
FERRY_HD inline std::uint32_t group_of_four(const std::byte* scales, int column, int count) {
  std::uint32_t word = 0;
  for (int i = 0; scales != nullptr && i < 4 && column + i < count; ++i)
    word |= static_cast<std::uint32_t>(scales[column + i]) << 8 * i;
  return word;
}

// `scales` are in column order; null: scale 0. All threads of the group call it.
template <ThreadGroup G>
FERRY_HD void put_row_scales(const G& g, const RowScales& to, std::int64_t row, const std::byte* scales) {
  const std::int64_t group = to.group_rows == 0 ? 0 : row / to.group_rows;
  std::byte* const first = to.data + group * to.group_stride + (row - group * to.group_rows) * to.row_stride;
  switch (to.as) {
    case RowScales::As::they_are:
      for (int column = g.thread(); column < to.count; column += g.size())
        detail::put_scale(first + column * to.column_stride,
                          scales == nullptr ? nullptr : scales + std::ptrdiff_t{column} * to.scale_bytes,
                          to.scale_bytes);
      return;
    case RowScales::As::numbers:
      for (int column = g.thread(); column < to.count; column += g.size())
        *reinterpret_cast<std::uint32_t*>(first + column * to.column_stride) =
            scales == nullptr ? 0 : power_of_two_bits(static_cast<std::uint8_t>(scales[column]));
      return;
    case RowScales::As::groups_of_four:
      for (int four = g.thread(); 4 * four < to.count; four += g.size())
        *reinterpret_cast<std::uint32_t*>(first + four * to.column_stride) = group_of_four(scales, 4 * four, to.count);
  }
}

}  // namespace ferry
