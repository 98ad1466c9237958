// ResultSlot: where a result of this rank goes.
#pragma once

#include <cstdint>

#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

struct ResultCounts {
  std::uint64_t* bytes = nullptr;  // [ranks]
};

// A result's slot at its source, counted from the first one of its token, and its index in the send buffer.
struct ResultSlot {
  int index;
  std::uint32_t sent_index = 0;
};

}  // namespace ferry::cpu
