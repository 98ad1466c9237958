// Kernels of the benchmark: the copy that measures the wire, and values for tensors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ferry/shape.h"

namespace ferry::app {

// `bytes` to each of `peers` buffers of other devices, out of shared memory by bulk copies where the device has them.
struct WireCopy {
  std::byte* to[kMaxGpuRanks] = {};
  const std::byte* from = nullptr;  // peers * bytes
  std::size_t bytes = 0;            // a multiple of kWireChunk
  int peers = 0;
};
inline constexpr std::size_t kWireChunk = 8192;

void prepare_wire_copy();  // on the current device
void launch_wire_copy(const WireCopy& copy, int blocks, cudaStream_t stream);

// Finite bf16 values of both signs; `bytes` a multiple of 4.
void launch_fill_bf16(std::byte* memory, std::size_t bytes, std::uint32_t seed, cudaStream_t stream);

}  // namespace ferry::app
