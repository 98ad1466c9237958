// Contract: what all ranks of an exchange must agree on. Compared when it is made, so that a mismatch is an error that
// names both values and not a hang later.
#pragma once

#include <chrono>

#include "ferry/exchange.h"

namespace ferry {

// Collective. Throws Error(invalid_argument) on every rank where two ranks differ.
void require_same_contract(World& world, const Shape& shape, const ExchangeOptions& options);

}  // namespace ferry
