// BlockGroup: all threads of a CUDA block as one ThreadGroup.
#pragma once

#include <cstdint>

#include "ferry/thread_group.h"

namespace ferry::cuda {

struct BlockGroup {
  static constexpr int kWidth = 32;  // threads that exchange values without a barrier
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  // All threads get the same answer; also a barrier.
  __device__ bool all(bool value) const { return __syncthreads_and(value ? 1 : 0) != 0; }
  __device__ bool any(bool value) const { return __syncthreads_or(value ? 1 : 0) != 0; }

  template <int kThreads>
  __device__ std::uint32_t max_over(std::uint32_t value) const {
    for (int distance = kThreads / 2; distance > 0; distance /= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, value, distance);
      value = other > value ? other : value;
    }
    return value;
  }
};
static_assert(ThreadGroup<BlockGroup>);

}  // namespace ferry::cuda
