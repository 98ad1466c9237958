// What needs CUDA. A build without it has the same functions, which say so (no_cuda.cpp).
#pragma once

#include <ferry/exchange.h>
#include <ferry/rows/activation.h>
#include <ferry/worlds/process_world.h>
#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "python/src/world/world.h"

namespace ferry::python {

// The toolkit's version, as "13.0", and the architectures that kernels were compiled for; both empty without CUDA.
struct CudaBuild {
  const char* toolkit;
  const char* architectures;
};
CudaBuild cuda_build();

int cuda_devices();  // GPUs that this process sees

// As make_cuda_worlds and make_staged_cuda_worlds.
std::vector<std::unique_ptr<PyWorld>> cuda_thread_worlds(const std::vector<int>& devices, bool staged);

// The GPU of a process of a world of GPUs: `device`, or if that is negative its only one, or that of its local rank.
int gpu_of_process(const ProcessPlace& place, int device);
// As make_cuda_process_world.
std::unique_ptr<ProcessWorld> gpu_process_world(const ProcessPlace& place, int device, bool share_gpus,
                                                std::chrono::milliseconds deadline);

// As cuda_swiglu, on a stream by its number.
void swiglu_on_gpu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out,
                   const SwigluOptions& options, std::uintptr_t stream);

// How the rows of a dispatch lie.
struct RowPlace {
  RowOrder order = RowOrder::by_expert;
  std::int64_t expert_stride = 0;
  int format = 0;  // DispatchInput::format
};
// As load_cuda_decode_rows, on that GPU.
void load_decoder(const AnyFormat& format, int device);
// As cuda_decode_rows, with zeros in rows without a token. `input_scale`: f32 [1] on the GPU, or not given.
void decode_on_gpu(const Exchange& exchange, const DispatchOutput& rows, const Tensor& values, const RowPlace& place,
                   const ConstTensor& input_scale, std::uintptr_t stream);

std::size_t state_bytes(const Shape& shape, const ExchangeOptions& options, int rank);

// 256 bytes of that GPU's memory, for tensors without elements: null would mean that they were not given. A world makes
// them with itself, as an allocation may wait for kernels.
void* nothing_on_gpu(int device);

// The tensor's bytes, which lie on a GPU, in `to`. Waits for the stream.
void copy_to_host(const ConstTensor& tensor, void* to, std::uintptr_t stream);
// Clears a tensor on a GPU, in the order of the stream.
void clear_on_gpu(const Tensor& tensor, std::uintptr_t stream);

}  // namespace ferry::python
