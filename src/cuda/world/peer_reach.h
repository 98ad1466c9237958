// Errors of ranks that cannot reach each other's memory. No types of CUDA, so that it is tested without GPUs: few
// machines have a pair that cannot reach each other.
#pragma once

#include <fmt/core.h>

#include <string>

#include "ferry/error.h"

namespace ferry::cuda {

inline constexpr const char* kMustReach = "of one world must all reach each other (NVLink or PCIe peer access)";

// Throws Error(unsupported) that names the pair where `rank` does not reach the memory of another one:
// can_reach(peer) says so, and name(rank) is "GPU 0 of rank 1".
template <class CanReach, class Name>
void require_reach(int rank, int ranks, const CanReach& can_reach, const Name& name) {
  for (int peer = 0; peer < ranks; ++peer)
    if (peer != rank && !can_reach(peer))
      throw Error(ErrorKind::unsupported,
                  fmt::format("{} cannot reach the memory of {}; ranks {}", name(rank), name(peer), kMustReach));
}

// The error of a rank that could not map the memory of `peer`. The driver's words come first, since it may refuse for
// other reasons than reach. It reports a lack of memory apart.
inline Error cannot_map(const std::string& rank, const std::string& peer, bool lacks_memory, const char* words) {
  if (lacks_memory)
    return {ErrorKind::system, fmt::format("{} has no room to map the memory of {}: {}. Make max_tokens smaller, or "
                                           "leave more of the GPU's memory free",
                                           rank, peer, words)};
  return {ErrorKind::unsupported,
          fmt::format("{} cannot map the memory of {}: {}. Ranks {}", rank, peer, words, kMustReach)};
}

}  // namespace ferry::cuda
