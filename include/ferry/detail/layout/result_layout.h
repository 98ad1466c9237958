// The bytes of a result: the payload of its format, its scales, and where the format has a scale for the whole tensor
// (nvfp4) a float32 scale of this row's own, at a multiple of 4. A result is a multiple of 16 bytes.
#pragma once

#include <cstddef>
#include <string_view>

#include "ferry/formats/portable.h"
#include "ferry/token_format.h"

namespace ferry {

// Results that travel as bf16 rows are summed where they lie; those of other formats are decoded first.
inline bool is_bf16_row(const AnyFormat& format) { return format.name() == std::string_view("bf16"); }

struct ResultLayout {
  std::size_t scales = 0;     // where they begin
  std::size_t row_scale = 0;  // where it is; 0: there is none
  std::size_t bytes = 0;      // of a result
};

template <class F>
constexpr bool has_row_scale(const F& format) {
  return format.name() == std::string_view("nvfp4");
}

// `scale_bytes`: of all scales of a row. A kernel has asked has_row_scale when it was compiled.
FERRY_HD constexpr ResultLayout result_layout(std::size_t payload_bytes, std::size_t scale_bytes, bool with_row_scale) {
  ResultLayout layout;
  layout.scales = payload_bytes;
  std::size_t end = payload_bytes + scale_bytes;
  if (with_row_scale) {
    layout.row_scale = (end + 3) / 4 * 4;
    end = layout.row_scale + sizeof(float);
  }
  layout.bytes = (end + 15) / 16 * 16;
  return layout;
}

inline ResultLayout result_layout(const AnyFormat& format, int hidden) {
  const int block = format.block();
  const int scales = block == 0 ? 0 : hidden / block + (hidden % block != 0 ? 1 : 0);  // no sum beyond an int
  return result_layout(format.payload_bytes(hidden), static_cast<std::size_t>(scales * format.scale_bytes()),
                       has_row_scale(format));
}

}  // namespace ferry
