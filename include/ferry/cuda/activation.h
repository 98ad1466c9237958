// SwiGLU on a GPU: ferry::swiglu (ferry/activation.h) for tensors in device memory. Its float32 values differ from the
// CPU's in their last bits. So a few codes and scales differ, by one step. Gates below -87.3 give 0 (docs/formats.md).
#pragma once

#include "ferry/rows/activation.h"

namespace ferry {

struct CudaLaunch {
  void* stream = nullptr;  // the cudaStream_t that the kernel goes to; null: the default stream
  int max_blocks = 0;      // most blocks of the kernel, which leaves multiprocessors to others; 0: no limit
};

// Enqueues one kernel that activates the rows that row_offsets says exist when it runs, into `format`, and returns.
// Nothing waits for the GPU, but the first call of a kind may while CUDA loads its kernel: load_cuda_swiglu does that
// ahead. The call may be captured in a CUDA graph. All tensors are memory of one device, which
// `stream` belongs to; rows and payload start at multiples of 16 bytes. Rows that do not exist may be read, up to
// row_capacity. The caller keeps them all until the kernel is done.
//
// Throws Error(invalid_argument) that names the argument, before anything is enqueued: for all that ferry::swiglu
// refuses, for host memory and for memory of another device; but not for values in device memory. Rows past
// row_capacity are left out, and scales whose tiles lie outside the tensor are not stored. Throws Error(unsupported)
// where `format` is not one of the library's, and where this build has no kernels for the device.
void cuda_swiglu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out,
                 const SwigluOptions& options = {}, const CudaLaunch& launch = {});

// Loads the kernels of cuda_swiglu into `format` on the current device. CUDA loads a kernel at its first launch unless
// it was loaded before, and that may wait for running kernels of the device. A kernel of an exchange may then be
// waiting for another rank, whose own call comes later. So call this before the first round, once for each device and
// format. Throws Error(unsupported) as cuda_swiglu.
void load_cuda_swiglu(const AnyFormat& format);

}  // namespace ferry
