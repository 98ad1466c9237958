// Decoding on a GPU what a dispatch left there: decode_row (ferry/rows/host_rows.h) for all rows in one kernel, which
// reads codes and scales once and writes values. The values are those of decode_row, rounded once to the dtype asked
// for.
#pragma once

#include "ferry/cuda/activation.h"
#include "ferry/exchange.h"

namespace ferry {

struct DecodeOptions {
  RowOrder row_order = RowOrder::by_expert;  // of the dispatch; not in_place, whose rows are messages
  std::int64_t expert_stride = 0;            // padded: that of the dispatch; 0: RowLayout::expert_rows
  const float* input_scale = nullptr;        // that of the dispatch, in memory of the GPU (nvfp4); null: 1
  bool zero_padding = false;                 // rows without a token become zeros; else they stay as they were
};

// Enqueues one kernel that decodes the rows of `rows`, a dispatch's output in this format and layout, into `values`:
// bf16, f16 or f32 [row_capacity, hidden], contiguous. Of `rows` it reads payload and scales, global_scales where the
// layout has them, and what says which rows hold a token when it runs:
//   by_expert  row_offsets, src_info, with tiled scales scales_offsets
//   padded     counts, with tiled scales scales_offsets
//   by_source  source_offsets
// The host learns nothing of that and waits for nothing, so the call may be captured in a CUDA graph; but the first
// call of a kind may wait while CUDA loads its kernel: load_cuda_decode_rows does that ahead. Codes of rows without a
// token mean nothing, and those of rows past the last are not read: they cost nothing unless zero_padding writes zeros
// there.
//
// All tensors are memory of one device, which `stream` belongs to; payload and values start at multiples of 16 bytes.
// The caller keeps them all until the kernel is done.
//
// Throws Error(invalid_argument) that names the argument, before anything is enqueued: for a layout of another format,
// a format of bytes, a tensor that is not given, has another dtype or shape, or is not contiguous, for host memory and
// for memory of another device; but not for values in device memory. Rows past row_capacity are left out, and a scale
// whose tile lies outside the tensor counts as 0. Throws Error(unsupported) where `format` is not one of the library's
// (ferry/cuda/compiled_decode_rows.cuh compiles the kernel of another), for 2^31 rows or more, and where this build has
// no kernels for the device.
void cuda_decode_rows(const AnyFormat& format, const RowLayout& layout, const DispatchOutput& rows,
                      const Tensor& values, const DecodeOptions& options = {}, const CudaLaunch& launch = {});

// Loads the kernel of cuda_decode_rows of `format` on the current device, as load_cuda_swiglu does and for its reasons:
// call this before the first round, once for each device and format. Throws Error(unsupported) as cuda_decode_rows.
void load_cuda_decode_rows(const AnyFormat& format);

}  // namespace ferry
