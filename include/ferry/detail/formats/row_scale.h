// The global scale of a row in nvfp4: g = 2688 / its largest magnitude, one float32 division. So its largest magnitude
// becomes the largest value that codes and block scales can say together, 6 * 448. 1 where that magnitude is 0 or not
// finite, and where g is not finite. What travels, and what a row is multiplied by, is 1 / g, one more division.
#pragma once

#include <cmath>

#include "ferry/input_row.h"

namespace ferry {

inline float row_scale_of(InputRow row, int hidden) {
  float largest = 0;
  for (int column = 0; column < hidden; ++column) {
    const float magnitude = std::fabs(value_at(row, column));
    if (!std::isfinite(magnitude)) return 1.0f;
    largest = magnitude > largest ? magnitude : largest;
  }
  constexpr float kLargestValue = 6.0f * 448.0f;
  const float scale = kLargestValue / largest;
  return std::isfinite(scale) ? scale : 1.0f;
}

}  // namespace ferry
