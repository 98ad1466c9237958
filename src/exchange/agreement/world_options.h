// Options of an exchange that not every world can do.
#pragma once

#include "ferry/exchange.h"
#include "ferry/world.h"

namespace ferry {

// Throws Error(unsupported) that names the option.
void require_options_of_world(int rank, const ExchangeOptions& options, const WorldCapabilities& can);

}  // namespace ferry
