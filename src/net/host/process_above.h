// Finds a launcher by its name among the processes that started this one, directly or not.
#pragma once

#include <string>

namespace ferry::net {

// The nearest ancestor with this name (15 characters count), as a text that is unique on this host and the same for all
// of its descendants. Empty if there is none.
std::string process_above(const char* name);

}  // namespace ferry::net
