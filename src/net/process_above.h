// The process that started this one, or the one that started that: launchers are found by their names.
#pragma once

#include <string>

namespace ferry::net {

// The nearest process above this one that has this name (15 characters count), as text: the same for all that it
// started, at any depth, and no other process of this host has it. Empty where there is none.
std::string process_above(const char* name);

}  // namespace ferry::net
