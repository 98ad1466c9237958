// The thread groups of SwiGLU on a GPU: a warp, and a block. What one thread wrote before sync() is seen by all threads
// of the group after it.
#pragma once

#include <cstdint>

#include "ferry/formats/thread_group.h"

namespace ferry::cuda {

// All 32 threads of a warp, which stay together: every one of them makes every call.
struct WarpGroup {
  static constexpr int kWidth = 32;
  static constexpr unsigned kAllThreads = 0xffffffffu;

  // Blocks are one-dimensional and hold whole warps.
  __device__ int thread() const { return static_cast<int>(threadIdx.x % kWidth); }
  __device__ int size() const { return kWidth; }
  __device__ void sync() const { __syncwarp(kAllThreads); }

  template <int kThreads>
  __device__ std::uint32_t max_over(std::uint32_t value) const {
    static_assert(kThreads >= 1 && kThreads <= kWidth && (kThreads & (kThreads - 1)) == 0,
                  "a run is a power of two of the threads of a warp");
#pragma unroll
    for (int distance = kThreads / 2; distance > 0; distance /= 2) {
      const std::uint32_t other = __shfl_xor_sync(kAllThreads, value, distance);
      value = value > other ? value : other;
    }
    return value;
  }
};
static_assert(ThreadGroup<WarpGroup>);

// All threads of a block, which is one-dimensional and holds whole warps.
struct BlockGroup {
  static constexpr int kWidth = WarpGroup::kWidth;

  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }

  template <int kThreads>
  __device__ std::uint32_t max_over(std::uint32_t value) const {
    return WarpGroup{}.max_over<kThreads>(value);
  }
};
static_assert(ThreadGroup<BlockGroup>);

}  // namespace ferry::cuda
