#include "own_decoders.h"

#include "ferry/cuda/compiled_decode_rows.cuh"
#include "support/own_formats.h"

namespace ferry::test {
namespace {

template <TokenFormat F>
OwnDecoder own_decoder() {
  return {any_format<F>(), &cuda::compiled_decode_rows<F>, &cuda::load_compiled_decode_rows<F>};
}

}  // namespace

const std::vector<OwnDecoder>& own_decoders() {
  static const std::vector<OwnDecoder> kDecoders = {own_decoder<Int8Block64>(), own_decoder<Int8Transposed>(),
                                                    own_decoder<Int8Tiled>(), own_decoder<Int8Columns>()};
  return kDecoders;
}

}  // namespace ferry::test
