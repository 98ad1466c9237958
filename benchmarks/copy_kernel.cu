#include "copy_kernel.h"

#include <algorithm>
#include <cstdint>

namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // loads of a thread on their way at once

__global__ void __launch_bounds__(kThreads) copy_vectors(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t first = std::size_t{blockIdx.x} * kThreads + threadIdx.x; first < count; first += kAhead * stride) {
    uint4 vectors[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i * stride < count) vectors[i] = from[first + i * stride];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i * stride < count) to[first + i * stride] = vectors[i];
  }
}

}  // namespace

void launch_copy(void* to, const void* from, std::size_t bytes, int multiprocessors, cudaStream_t stream) {
  const std::size_t count = bytes / sizeof(uint4);
  const std::size_t blocks =
      std::min<std::size_t>((count + kThreads - 1) / kThreads, 8u * static_cast<unsigned>(multiprocessors));
  copy_vectors<<<static_cast<unsigned>(std::max<std::size_t>(blocks, 1)), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), count);
}
