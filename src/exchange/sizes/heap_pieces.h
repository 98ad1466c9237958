// Which parts of a rank's symmetric memory may be lost between two operations, and which may not.
#pragma once

#include <cstddef>
#include <vector>

#include "ferry/detail/layout/heap_map.h"

namespace ferry {

// Slots and send buffers: the largest part by far. They are written before they are read.
constexpr bool is_slots(HeapMap::Region region) {
  return region == HeapMap::kMessages || region == HeapMap::kResults || region == HeapMap::kSentMessages ||
         region == HeapMap::kSentResults;
}

struct HeapPiece {
  std::size_t begin;
  std::size_t bytes;
};

// The slots, or all that is none, from the lowest offset to the highest.
inline std::vector<HeapPiece> heap_pieces(const HeapMap& map, bool slots) {
  std::vector<HeapPiece> pieces;
  for (int index = 0; index < HeapMap::kRegions; ++index) {
    const auto region = static_cast<HeapMap::Region>(index);
    const std::size_t bytes = map.region_bytes(region);
    if (is_slots(region) != slots || bytes == 0) continue;
    if (!pieces.empty() && pieces.back().begin + pieces.back().bytes == map.begin(region))
      pieces.back().bytes += bytes;
    else
      pieces.push_back({map.begin(region), bytes});
  }
  return pieces;
}

}  // namespace ferry
