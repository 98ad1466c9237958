// What a swiglu call refuses, and what is left of its arguments once they are checked.
#pragma once

#include "ferry/detail/layout/scale_layout.h"
#include "ferry/rows/activation.h"

namespace ferry::activation {

// A swiglu call whose every size and address has been checked.
struct SwigluWork {
  const std::byte* rows = nullptr;
  DType dtype = DType::none;
  int inter = 0;
  int groups = 0;
  const std::uint32_t* row_offsets = nullptr;
  const std::uint32_t* scales_offsets = nullptr;  // tiled only
  const float* input_scales = nullptr;            // null: 1
  std::byte* payload = nullptr;
  std::size_t payload_row_bytes = 0;
  ScaleTensor scales;
};

// Whether the tensors are memory that this code can read, or only pass on to a GPU: then the values in them are not
// checked, and rows and payload start at multiples of 16 bytes.
enum class TensorMemory { host, device };

// Throws Error(invalid_argument).
SwigluWork check_swiglu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out,
                        const SwigluOptions& options, TensorMemory memory = TensorMemory::host);

}  // namespace ferry::activation
