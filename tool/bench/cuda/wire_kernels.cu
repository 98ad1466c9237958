#include "tool/bench/cuda/wire_kernels.h"

#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/cuda/team/ptx.cuh"

namespace ferry::app {
namespace {

constexpr int kWarps = 4;
constexpr int kStages = 4;  // chunks of a warp on their way at once
constexpr std::size_t kSharedBytes = kWarps * kStages * kWireChunk;

// Copies a chunk by one warp, 16 bytes a lane.
__device__ void copy_chunk(std::byte* to, const std::byte* from, unsigned lane) {
  for (std::size_t at = lane * sizeof(uint4); at < kWireChunk; at += 32 * sizeof(uint4))
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
}

// Each warp takes every n-th chunk; neighbours go to different peers.
__global__ void wire_copy_kernel(const __grid_constant__ WireCopy copy) {
  extern __shared__ __align__(128) std::byte shared[];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto peers = static_cast<std::size_t>(copy.peers);
  const std::size_t items = copy.bytes / kWireChunk * peers;
  [[maybe_unused]] unsigned stage = 0;
  for (std::size_t item = blockIdx.x * kWarps + warp; item < items; item += gridDim.x * kWarps) {
    const std::size_t peer = item % peers, at = item / peers * kWireChunk;
    const std::byte* from = copy.from + peer * copy.bytes + at;
#if __CUDA_ARCH__ >= 900
    std::byte* const buffer = shared + (warp * kStages + stage) * kWireChunk;
    if (lane == 0) ptx::bulk_wait_read<kStages - 1>();  // the copy engine is done with this buffer
    __syncwarp();
    copy_chunk(buffer, from, lane);
    ptx::fence_shared_for_bulk();
    __syncwarp();
    if (lane == 0) {
      ptx::bulk_store(copy.to[peer] + at, buffer, kWireChunk);
      ptx::bulk_commit();
    }
    stage = (stage + 1) % kStages;
#else
    copy_chunk(copy.to[peer] + at, from, lane);
#endif
  }
  if (lane == 0) ptx::bulk_wait<0>();
}

__global__ void fill_bf16_kernel(std::uint32_t* words, std::size_t count, std::uint32_t seed) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + seed * 40503u + 1u;
    x = (x ^ (x >> 15)) * 2246822519u;
    x = (x ^ (x >> 13)) * 3266489917u;
    words[i] = ((x ^ (x >> 16)) & 0x83FF83FFu) | 0x3C003C00u;  // magnitudes 2^-7 to 1
  }
}

}  // namespace

void prepare_wire_copy() {
  cuda::cuda_check(cudaFuncSetAttribute(&wire_copy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(kSharedBytes)),
                   "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
}

void launch_wire_copy(const WireCopy& copy, int blocks, cudaStream_t stream) {
  wire_copy_kernel<<<static_cast<unsigned>(blocks), kWarps * 32, kSharedBytes, stream>>>(copy);
  cuda::cuda_check(cudaGetLastError(), "launch of the wire copy");
}

void launch_fill_bf16(std::byte* memory, std::size_t bytes, std::uint32_t seed, cudaStream_t stream) {
  fill_bf16_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<std::uint32_t*>(memory), bytes / 4, seed);
  cuda::cuda_check(cudaGetLastError(), "launch of the fill");
}

}  // namespace ferry::app
