// SwiGLU into formats of the test itself: three that encode rows, and one that encodes columns.
#pragma once

#include <vector>

#include "ferry/cuda/activation.h"

namespace ferry::test {

using CompiledSwiglu = void(const SwigluInput&, const SwigluOutput&, const SwigluOptions&, const CudaLaunch&);

struct OwnFormat {
  AnyFormat format;
  CompiledSwiglu* swiglu;
};
const std::vector<OwnFormat>& own_formats();

}  // namespace ferry::test
