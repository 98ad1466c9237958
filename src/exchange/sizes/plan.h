// make_plan: what the phases of a round need to know of an exchange, the same for every backend.
#pragma once

#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/exchange.h"

namespace ferry {

// For `rank` of the world, from checked arguments. `masked` is left to the backend, which keeps it where its phases
// run.
Plan make_plan(const Shape& shape, const ExchangeOptions& options, const HeapMap& map, int rank);

}  // namespace ferry
