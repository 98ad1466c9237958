// How the ranks of a world reach each other, in the log of FERRY_DEBUG.
#pragma once

#include <string>

#include "ferry/worlds/process_world.h"

namespace ferry {

// `what`: the world, in words.
void log_reach(const ProcessWorld& world, const std::string& what);

}  // namespace ferry
