// Where the scales of the rows of a group lie: of one tensor for all groups, or of one for each.
#pragma once

#include <cstdint>

#include "ferry/detail/layout/scale_layout.h"

namespace ferry::app {

struct GroupScales {
  ScaleTensor tensor;
  std::int64_t skipped = 0;  // rows of the groups before, where each group has a tensor
  ScaleRow first;            // of any row of the group, without its number

  FERRY_HD ScaleRow at(std::int64_t row) const { return {row - skipped, first.first_row, first.scales_offset}; }
};

}  // namespace ferry::app
