// Reads the place of a process from what launchers put into its environment.
#pragma once

#include <functional>

#include "ferry/processes.h"

namespace ferry::net {

// A variable's value, or null.
using Environment = std::function<const char*(const char* name)>;

ProcessPlace place_in(const Environment& environment, const ProcessPlace& given);

// "node[03-07,9],other" -> "node03".
std::string first_node(const std::string& node_list);

}  // namespace ferry::net
