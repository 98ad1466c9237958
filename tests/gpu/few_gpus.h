// Tests want 4 ranks, or 8, wherever there is a GPU: where GPUs are fewer, several ranks share one.
#pragma once

#include "ferry/cuda/cuda_world.h"

namespace ferry::test {

inline int ranks_per_gpu(int ranks) {
  const int gpus = num_cuda_devices();
  return (ranks + gpus - 1) / gpus;
}

// Of a rank of a job of processes.
inline int gpu_of(int rank) { return rank % num_cuda_devices(); }

}  // namespace ferry::test
