// Copies by a group of threads. A backend's own, faster copies are part of its row operations
// (ferry/detail/protocol/contracts/row_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ferry/formats/portable.h"
#include "ferry/formats/thread_group.h"

namespace ferry {

struct alignas(16) Bytes16 {
  std::uint32_t word[4];
};

// Any addresses and any number of bytes; faster where both addresses are multiples of 16.
template <ThreadGroup G>
FERRY_HD void copy_bytes(const G& g, std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__CUDA_ARCH__)
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) & 15) == 0;
  const std::size_t wide = aligned ? bytes / sizeof(Bytes16) : 0;
  for (std::size_t i = static_cast<std::size_t>(g.thread()); i < wide; i += static_cast<std::size_t>(g.size()))
    reinterpret_cast<Bytes16*>(to)[i] = reinterpret_cast<const Bytes16*>(from)[i];
  for (std::size_t i = wide * sizeof(Bytes16) + static_cast<std::size_t>(g.thread()); i < bytes;
       i += static_cast<std::size_t>(g.size()))
    to[i] = from[i];
#else
  if (g.thread() == 0 && bytes != 0) std::memcpy(to, from, bytes);
#endif
}

template <ThreadGroup G>
FERRY_HD void fill_zero(const G& g, std::byte* to, std::size_t bytes) {
#if defined(__CUDA_ARCH__)
  for (std::size_t i = static_cast<std::size_t>(g.thread()); i < bytes; i += static_cast<std::size_t>(g.size()))
    to[i] = std::byte{0};
#else
  if (g.thread() == 0 && bytes != 0) std::memset(to, 0, bytes);
#endif
}

}  // namespace ferry
