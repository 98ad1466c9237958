// Decoding formats of the test itself: three that decode whole rows, and one that decodes columns.
#pragma once

#include <vector>

#include "ferry/cuda/decode_rows.h"

namespace ferry::test {

struct OwnDecoder {
  AnyFormat format;
  void (*decode)(const RowLayout&, const DispatchOutput&, const Tensor&, const DecodeOptions&, const CudaLaunch&);
  void (*load)();
};
const std::vector<OwnDecoder>& own_decoders();

}  // namespace ferry::test
