// The scales of rows at strides that the caller chose (DispatchOutput::row_scales).
#pragma once

#include <cstring>

#include "cpu/host_ops.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/round.h"

namespace ferry::cpu {

// 2^(code - 127), as float32 bits; 255 is NaN. The smallest one is below the normal numbers.
inline std::uint32_t power_of_two_bits(std::uint8_t code) {
  if (code == 255) return 0x7FC00000u;
  return code == 0 ? 0x00400000u : std::uint32_t{code} << 23;
}

// `scales` are in column order; null: scale 0.
inline void put_row_scales(const RowScales& to, std::int64_t row, const std::byte* scales) {
  const std::int64_t group = to.group_rows == 0 ? 0 : row / to.group_rows;
  std::byte* at = to.data + group * to.group_stride + (row - group * to.group_rows) * to.row_stride;
  const auto code = [&](int column) {
    return scales == nullptr || column >= to.count ? std::uint8_t{0} : std::to_integer<std::uint8_t>(scales[column]);
  };
  switch (to.as) {
    case RowScales::As::they_are:
      for (int column = 0; column < to.count; ++column, at += to.column_stride)
        detail::put_scale(at, scales == nullptr ? nullptr : scales + std::ptrdiff_t{column} * to.scale_bytes,
                          to.scale_bytes);
      return;
    case RowScales::As::numbers:
      for (int column = 0; column < to.count; ++column, at += to.column_stride) {
        const std::uint32_t bits = scales == nullptr ? 0 : power_of_two_bits(code(column));
        std::memcpy(at, &bits, sizeof bits);
      }
      return;
    case RowScales::As::groups_of_four:
      for (int column = 0; column < to.count; column += 4, at += to.column_stride) {
        std::uint32_t word = 0;
        for (int i = 3; i >= 0; --i) word = word << 8 | code(column + i);
        std::memcpy(at, &word, sizeof word);
      }
  }
}

// The operations on rows, which also store the scales where the caller asked for them. `to` may have no memory.
template <class O>
struct RowScaleOps : O {
  RowScales to;

  void store_scales(const HostGroup& g, const ScaleTensor& tensor, const std::byte* scales, const RowStarts& starts,
                    int shared_groups, const LocalRows& rows) const {
    if (tensor.layout != ScaleLayout::none) O::store_scales(g, tensor, scales, starts, shared_groups, rows);
    for (int i = 0; to.data != nullptr && i < rows.count; ++i) put_row_scales(to, rows.row[i], scales);
  }
};
static_assert(RowOps<RowScaleOps<HostOps>, HostGroup> && RowOps<RowScaleOps<PaddedOps<HostOps>>, HostGroup>);

}  // namespace ferry::cpu
