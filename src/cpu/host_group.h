// HostGroup: one CPU thread, which may write past the cache.
#pragma once

#include <cstddef>

#include "ferry/thread_group.h"

namespace ferry::cpu {

struct HostGroup : SerialGroup {
  constexpr HostGroup() = default;
  constexpr HostGroup(const SerialGroup&) {}  // a fabric's calls take either

  // Rows, messages and sums go to memory past the cache: for more of them than it keeps. Then finish_stores() must come
  // between them and the release that publishes them.
  bool nontemporal = false;
};
static_assert(ThreadGroup<HostGroup>);

void copy_message(const HostGroup& g, std::byte* to, const std::byte* from, std::size_t bytes);

// Stores past the cache are not ordered by a release alone; this orders them.
void finish_stores(const HostGroup& g);

}  // namespace ferry::cpu
