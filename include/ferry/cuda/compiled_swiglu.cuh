// compiled_swiglu: cuda_swiglu into a token format of your own, whose kernel is compiled in your own .cu file.
//
// Compile with nvcc and link ferry::cuda_kernels, which brings --fmad=false: codes are the same bytes as on the CPU
// only where nothing is contracted.
#pragma once

#include "ferry/cuda/activation.h"
#include "ferry/detail/cuda/activation/swiglu_launcher.cuh"

namespace ferry::cuda {

// As cuda_swiglu, into `Fmt`. Where Fmt is a ColumnFormat (ferry/token_format.h), threads encode what they activate
// from their registers. Else a block of threads activates a row in shared memory and encodes it there: then
// Error(unsupported) is thrown besides where a block has too little shared memory for 4 * inter bytes and the encoded
// row.
template <TokenFormat Fmt>
void compiled_swiglu(const SwigluInput& in, const SwigluOutput& out, const SwigluOptions& options = {},
                     const CudaLaunch& launch = {}) {
  run_swiglu(any_format<Fmt>(), swiglu_launcher<Fmt>(), in, out, options, launch);
}

// As load_cuda_swiglu, for compiled_swiglu into `Fmt`.
template <TokenFormat Fmt>
void load_compiled_swiglu() {
  load_swiglu(swiglu_launcher<Fmt>());
}

}  // namespace ferry::cuda
