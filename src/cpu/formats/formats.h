// The library's formats at a chosen vector instruction set; all_formats() gives those of the best.
#pragma once

#include <array>

#include "cpu/formats/simd.h"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cpu {

// In the order of Formats. This machine must support `level` where the formats are used.
const std::array<AnyFormat, Formats::kCount>& formats_at(SimdLevel level);

}  // namespace ferry::cpu
