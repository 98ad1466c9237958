// compiled_decode_rows: cuda_decode_rows of a token format of your own, whose kernel is compiled in your own .cu file.
//
// Compile with nvcc and link ferry::cuda_kernels, which brings --fmad=false: values are those of the CPU only where
// nothing is contracted.
#pragma once

#include "ferry/cuda/decode_rows.h"
#include "ferry/detail/cuda/activation/decode_rows_launcher.cuh"

namespace ferry::cuda {

// As cuda_decode_rows, of rows in `Fmt`. Where Fmt has decode_columns (DecodesColumns, ferry/token_format.h), a thread
// decodes eight columns in its registers. Else a block of threads decodes a row in shared memory: then
// Error(unsupported) is thrown besides where a block has too little shared memory for 4 * hidden bytes and the encoded
// row.
template <TokenFormat Fmt>
void compiled_decode_rows(const RowLayout& layout, const DispatchOutput& rows, const Tensor& values,
                          const DecodeOptions& options = {}, const CudaLaunch& launch = {}) {
  run_decode_rows(any_format<Fmt>(), decode_rows_launcher<Fmt>(), layout, rows, values, options, launch);
}

// As load_cuda_decode_rows, for compiled_decode_rows of `Fmt`.
template <TokenFormat Fmt>
void load_compiled_decode_rows() {
  load_decode_rows(decode_rows_launcher<Fmt>());
}

}  // namespace ferry::cuda
