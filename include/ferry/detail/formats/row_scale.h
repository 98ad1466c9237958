// The global scale of a row in nvfp4: g = 2688 / its largest magnitude, one float32 division. So its largest magnitude
// becomes the largest value that codes and block scales can say together, 6 * 448. 1 where that magnitude is 0 or not
// finite, and where g is not finite. What travels, and what a row is multiplied by, is 1 / g, one more division.
#pragma once

#include <cstdint>

#include "ferry/detail/formats/rounded.h"
#include "ferry/formats/input_row.h"

namespace ferry {

// `largest`: the bits of the row's largest magnitude. They are above the bits of infinity if a value is a NaN.
FERRY_HD inline float row_scale_of_largest(std::uint32_t largest) {
  constexpr float kLargestValue = 6.0f * 448.0f;
  const float scale = codec::divide_rounded(kLargestValue, codec::float_of(largest));
  const bool is_finite = (codec::bits_of(scale) & codec::kMagnitudeMask) < codec::kInfinityBits;
  return largest < codec::kInfinityBits && is_finite ? scale : 1.0f;
}

inline float row_scale_of(InputRow row, int hidden) {
  std::uint32_t largest = 0;
  for (int column = 0; column < hidden; ++column)
    largest = codec::larger(largest, codec::bits_of(value_at(row, column)) & codec::kMagnitudeMask);
  return row_scale_of_largest(largest);
}

}  // namespace ferry
