// make_arrival_slots: the views behind Exchange::arrival_slots.
#pragma once

#include <cstddef>

#include "ferry/exchange.h"

namespace ferry {

// `first`: the first slot of all copies. `slot_bytes`: from a slot to the next.
ArrivalSlots make_arrival_slots(const std::byte* first, std::size_t slot_bytes, const Shape& shape,
                                const RowLayout& layout, const ExchangeOptions& options);

}  // namespace ferry
