#include "tool/bench/cuda/copy_kernel.h"

#include <algorithm>
#include <cstdint>

namespace ferry::app {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // loads of a thread on their way at once

// What is read and not written only has to be looked at.
__global__ void __launch_bounds__(kThreads)
    move_vectors(uint4* to, const uint4* from, std::size_t count, std::size_t written) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t first = std::size_t{blockIdx.x} * kThreads + threadIdx.x; first < count; first += kAhead * stride) {
    uint4 vectors[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i * stride < count) vectors[i] = from[first + i * stride];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::size_t at = first + i * stride;
      if (at < written || (at < count && (vectors[i].x & vectors[i].y & vectors[i].z & vectors[i].w) == 0xffffffffu))
        to[at] = vectors[i];
    }
  }
}

cudaError_t launch_move(void* to, const void* from, std::size_t read, std::size_t written, int most_blocks,
                        cudaStream_t stream) {
  const std::size_t count = read / sizeof(uint4);
  const std::size_t blocks =
      std::min<std::size_t>((count + kThreads - 1) / kThreads, static_cast<unsigned>(most_blocks));
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::max<std::size_t>(blocks, 1)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &dependent;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, move_vectors, static_cast<uint4*>(to), static_cast<const uint4*>(from), count,
                            written / sizeof(uint4));
}

}  // namespace

cudaError_t launch_copy(const CopyMethod& method, void* to, const void* from, std::size_t bytes, int multiprocessors,
                        cudaStream_t stream) {
  if (method.blocks == 0) return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  return launch_move(to, from, bytes, bytes, method.blocks * multiprocessors, stream);
}

cudaError_t launch_read_and_write(void* to, const void* from, std::size_t read, std::size_t written,
                                  int multiprocessors, cudaStream_t stream) {
  return launch_move(to, from, read, written, 8 * multiprocessors, stream);
}

}  // namespace ferry::app
