// WarpGroup: the 32 threads of a warp, working together.
#pragma once

#include <cstdint>

#include "ferry/thread_group.h"

namespace ferry::cuda {

struct WarpGroup {
  static constexpr int kWidth = 32;

  __device__ int thread() const { return static_cast<int>(threadIdx.x % kWidth); }
  __device__ int size() const { return kWidth; }
  __device__ void sync() const { __syncwarp(); }

  template <int kThreads>
  __device__ std::uint32_t max_over(std::uint32_t value) const {
    static_assert(kThreads >= 1 && kThreads <= kWidth && (kThreads & (kThreads - 1)) == 0,
                  "a run is a power of two, at most a warp");
    for (int apart = kThreads / 2; apart > 0; apart /= 2) {
      const std::uint32_t other = __shfl_xor_sync(~0u, value, apart);
      value = other > value ? other : value;
    }
    return value;
  }
};
static_assert(ThreadGroup<WarpGroup>);

}  // namespace ferry::cuda
