// The launcher of decoding a format: which kernel it takes.
#pragma once

#include "ferry/detail/cuda/activation/decode_columns_kernel.cuh"
#include "ferry/detail/cuda/activation/decode_row_kernel.cuh"

namespace ferry::cuda {

template <TokenFormat F>
DecodeRowsLauncher decode_rows_launcher() {
  if constexpr (DecodesColumns<F>)
    return {&decode_columns_kernel<F>, nullptr};
  else
    return {&decode_row_kernel<F>, &RowMemory<F>::bytes};
}

}  // namespace ferry::cuda
