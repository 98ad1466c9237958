// Worlds of threads without the limit of one node, for worlds that meet in memory and reach each other otherwise.
#pragma once

#include <memory>
#include <vector>

#include "ferry/world.h"

namespace ferry::cpu {

// `ranks`: 1 or more.
std::vector<std::unique_ptr<World>> make_worlds_of_threads(int ranks);

}  // namespace ferry::cpu
