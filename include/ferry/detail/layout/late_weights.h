// Late weights in symmetric memory (HeapMap::kLateWeights): router weights that come after the routing.
#pragma once

#include <cstdint>

#include "ferry/detail/layout/heap_map.h"
#include "ferry/error.h"

namespace ferry {

// In front of a source's late weights, which are float32 [max_tokens, top_k].
struct LateHeader {
  std::uint32_t is_given;  // 0: the weights of the routing count
  std::uint32_t reserved[3];
};
static_assert(sizeof(LateHeader) == HeapMap::kLateHeaderBytes);

inline constexpr int kLateCopyOfCombines = 2;
// Which copy of the region a call uses: replays one by the parity of their number, combines the third.
constexpr int late_copy(Operation operation, Epoch number) {
  return operation == Operation::combine ? kLateCopyOfCombines : static_cast<int>(number & 1);
}

}  // namespace ferry
