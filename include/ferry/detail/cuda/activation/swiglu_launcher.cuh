// The launcher of SwiGLU into a format: which kernel a format takes, and the kernel of each kind of input.
#pragma once

#include <bit>
#include <type_traits>

#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"
#include "ferry/detail/cuda/activation/swiglu_row_kernel.cuh"

namespace ferry::cuda {

// Whether threads encode columns of this format from their registers (swiglu_kernel.cuh). For any other format a block
// of threads encodes a row at a time (swiglu_row_kernel.cuh).
template <TokenFormat F>
constexpr bool encodes_columns() {
  if constexpr (std::is_same_v<F, Bf16>) {
    return true;
  } else if constexpr (ColumnFormat<F>) {
    constexpr int kLanes = F::block() / kSwigluColumns<F>;
    return std::has_single_bit(static_cast<unsigned>(kLanes)) && kLanes <= WarpGroup::kWidth &&
           F::payload_bytes(kSwigluColumns<F>) % 4 == 0 &&
           (F::scale_layout() != ScaleLayout::tiled || F::scale_bytes() == 1);
  } else {
    return false;
  }
}

template <TokenFormat F, class Input, bool kInterleaved>
const void* swiglu_kernel_of() {
  if constexpr (encodes_columns<F>())
    return reinterpret_cast<const void*>(&swiglu_kernel<F, Input, kInterleaved>);
  else
    return reinterpret_cast<const void*>(&swiglu_row_kernel<F, Input, kInterleaved>);
}

template <TokenFormat F, bool kInterleaved>
const void* swiglu_kernel_for(DType rows) {
  if (rows == DType::bf16) return swiglu_kernel_of<F, codec::Bf16Input, kInterleaved>();
  if (rows == DType::f16) return swiglu_kernel_of<F, codec::F16Input, kInterleaved>();
  return swiglu_kernel_of<F, codec::F32Input, kInterleaved>();
}

template <TokenFormat F>
SwigluLauncher swiglu_launcher() {
  SwigluLauncher launcher;
  launcher.kernel = [](DType rows, bool interleaved) {
    return interleaved ? swiglu_kernel_for<F, true>(rows) : swiglu_kernel_for<F, false>(rows);
  };
  if constexpr (encodes_columns<F>()) {
    launcher.columns = kSwigluColumns<F>;
    launcher.blocks = [](DType rows) {
      return rows == DType::f32 ? swiglu_blocks<F, codec::F32Input>() : swiglu_blocks<F, codec::Bf16Input>();
    };
  } else {
    launcher.row_memory = &RowMemory<F>::bytes;
  }
  return launcher;
}

// swiglu_launcher of one of the library's formats. A source per format defines it (swiglu_instance.cu.in), so that
// formats compile beside each other; the table of launchers only declares it.
template <TokenFormat F>
SwigluLauncher swiglu_instance();

}  // namespace ferry::cuda
