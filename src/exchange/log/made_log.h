// An exchange that was made, in the log of FERRY_DEBUG.
#pragma once

#include "ferry/detail/layout/heap_map.h"
#include "ferry/exchange.h"
#include "ferry/world.h"

namespace ferry {

// What its ranks agreed on, and what was allocated for this one.
void log_made(const World& world, const Shape& shape, const ExchangeOptions& options, const RowLayout& layout,
              const HeapMap& map);

}  // namespace ferry
