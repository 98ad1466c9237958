// Plain puts, as a baseline for an exchange: each warp puts one message after the other, round robin to all other
// ranks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ferry::cuda {

// Addresses in the symmetric heap. Message i of a rank goes to slot i % slots of its part of a peer's memory.
struct PlainPuts {
  std::byte* to = nullptr;          // [size, slots] messages
  const std::byte* from = nullptr;  // [slots] messages
  std::size_t message = 0;          // bytes, a multiple of 16
  int slots = 0;
  int count = 0;  // messages of this rank in total
  int rank = 0;
  int size = 0;
};

// `warps` of each block put concurrently. The kernel ends when all its puts have landed.
void launch_plain_puts(const PlainPuts& puts, int blocks, int warps, cudaStream_t stream);

}  // namespace ferry::cuda
