// Tests want 4 ranks, or 8, wherever there is a GPU: where GPUs are fewer, several ranks share one.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "ferry/cuda/cuda_world.h"

namespace ferry::test {

// Streams of ranks that share a GPU must not wait behind each other. Read when CUDA starts.
[[maybe_unused]] inline const int kConnections = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);

inline int ranks_per_gpu(int ranks) {
  const int gpus = std::max(1, num_cuda_devices());
  return (ranks + gpus - 1) / gpus;
}

// So many ranks, or FERRY_TEST_RANKS where that is less: under compute-sanitizer ranks of one process need a GPU each.
inline int allowed_ranks(int ranks) {
  const char* const most = std::getenv("FERRY_TEST_RANKS");
  return most == nullptr ? ranks : std::min(ranks, std::atoi(most));
}

// The device of a rank in a job of processes.
inline int gpu_of(int rank) { return rank % std::max(1, num_cuda_devices()); }

}  // namespace ferry::test
