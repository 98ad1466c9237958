// TeamGroup: a run of consecutive warps of a CUDA block, or all of it, as one ThreadGroup. Several teams of a block
// work on different tokens, so that the waits of one are the turns of another.
#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/tuning.h"
#include "ferry/thread_group.h"

namespace ferry::cuda {

class TeamGroup {
 public:
  static constexpr int kWidth = 32;  // threads that exchange values without a barrier

  // All threads of the block.
  __device__ TeamGroup() : barrier_(0), first_(0), threads_(static_cast<int>(blockDim.x)) {}
  // The team of `threads` threads that this thread is in.
  __device__ explicit TeamGroup(int threads)
      : barrier_(1 + static_cast<int>(threadIdx.x) / threads),
        first_(static_cast<int>(threadIdx.x) / threads * threads),
        threads_(threads) {}

  __device__ int team() const { return barrier_ - 1; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x) - first_; }
  __device__ int size() const { return threads_; }
  __device__ void sync() const { ptx::team_sync(barrier_, threads_); }
  // All threads get the same answer; also a barrier.
  __device__ bool all(bool value) const { return ptx::team_all(barrier_, threads_, value); }
  __device__ bool any(bool value) const { return ptx::team_any(barrier_, threads_, value); }

  template <int kThreads>
  __device__ std::uint32_t max_over(std::uint32_t value) const {
    for (int distance = kThreads / 2; distance > 0; distance /= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<unsigned>(distance));
      value = other > value ? other : value;
    }
    return value;
  }

 private:
  int barrier_;
  int first_;
  int threads_;
};
static_assert(ThreadGroup<TeamGroup>);

}  // namespace ferry::cuda
