// HostGroup: one CPU thread, which may write past the cache.
#pragma once

#include <cstddef>

#include "ferry/formats/thread_group.h"

namespace ferry::cpu {

struct HostGroup : SerialGroup {
  constexpr HostGroup() = default;
  constexpr HostGroup(const SerialGroup&) {}  // a fabric's calls take either

  // Rows, messages and sums go to memory past the cache: for more of them than it keeps. Then finish_stores() must come
  // between them and the release that publishes them.
  bool nontemporal = false;
};
static_assert(ThreadGroup<HostGroup>);

// What one call writes goes past the cache from this size on, about half of what a core has to itself: the lines it
// overwrites are rarely there any more (`ferry bench --tokens 8,32,64` shows it).
inline constexpr std::size_t kNontemporalBytes = std::size_t{512} << 10;
inline HostGroup group_for(std::size_t bytes) {
  HostGroup group;
  group.nontemporal = bytes >= kNontemporalBytes;
  return group;
}

void copy_message(const HostGroup& g, std::byte* to, const std::byte* from, std::size_t bytes);

// Non-temporal stores need more than a release to be ordered; this orders them.
void finish_stores(const HostGroup& g);

}  // namespace ferry::cpu
