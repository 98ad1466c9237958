// The library's formats at a chosen vector instruction set; all_formats() gives those of the best.
#pragma once

#include <span>

#include "cpu/formats/simd.h"
#include "ferry/token_format.h"

namespace ferry::cpu {

// In the order of all_formats(). `level` must be supported where the formats are used.
std::span<const AnyFormat> formats_at(SimdLevel level);

}  // namespace ferry::cpu
