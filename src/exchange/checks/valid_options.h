// What a shape and the options of an exchange must be, checked before anything is allocated.
#pragma once

#include "ferry/exchange.h"

namespace ferry {

// Throws Error(invalid_argument) where shape and options do not fit each other.
void require_valid(const Shape& shape, const ExchangeOptions& options);

}  // namespace ferry
