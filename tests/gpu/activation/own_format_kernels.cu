#include "own_format_kernels.h"

#include "ferry/cuda/compiled_swiglu.cuh"
#include "support/own_formats.h"

namespace ferry::test {

const std::vector<OwnFormat>& own_formats() {
  static const std::vector<OwnFormat> kFormats = {
      {any_format<Int8Block64>(), &cuda::compiled_swiglu<Int8Block64>},
      {any_format<Int8Transposed>(), &cuda::compiled_swiglu<Int8Transposed>},
      {any_format<Int8Tiled>(), &cuda::compiled_swiglu<Int8Tiled>},
      {any_format<Int8Columns>(), &cuda::compiled_swiglu<Int8Columns>}};
  return kFormats;
}

}  // namespace ferry::test
