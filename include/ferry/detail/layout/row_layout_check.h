// Whether rows of a layout are in a format.
#pragma once

#include <string>

#include "ferry/dispatch_output.h"

namespace ferry {

// Empty where payload and scales are as large as the format's, and the scales lie as the format's or in tiles. Else
// what they are, and what they are in the format.
inline std::string why_other_format(const AnyFormat& format, const RowLayout& layout) {
  const auto words = [](std::int64_t payload, int scales, std::size_t bytes, ScaleLayout lie) {
    return std::to_string(payload) + " bytes, " + std::to_string(scales) + " scales of " + std::to_string(bytes) +
           " bytes, " + to_string(lie);
  };
  const auto payload = static_cast<std::int64_t>(format.payload_bytes(layout.hidden));
  const int scales = scales_per_row(format, layout.hidden);
  const auto scale_bytes = static_cast<std::size_t>(format.scale_bytes());
  const std::size_t has_bytes = layout.scale_layout == ScaleLayout::none ? 0 : size_of(layout.scale_dtype);
  const bool lie_so = layout.scale_layout == format.scale_layout() || layout.scale_layout == ScaleLayout::tiled;
  if (payload == layout.payload_row_bytes && scales == layout.scales_per_row && scale_bytes == has_bytes && lie_so)
    return {};
  return std::string("the rows are of another format than ") + format.name() + ": " +
         words(layout.payload_row_bytes, layout.scales_per_row, has_bytes, layout.scale_layout) + "; its rows have " +
         words(payload, scales, scale_bytes, format.scale_layout());
}

}  // namespace ferry
