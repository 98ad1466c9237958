// What `ferry bench --simulate` says: tables for people, JSON lines for programs.
#pragma once

#include <string>
#include <vector>

#include "tool/simulate/simulate.h"
#include "tool/text/json.h"

namespace ferry::app {

// One record, complete by itself.
Json to_json(const Simulated& simulated, const std::string& command);

// The cluster and the shape; what a rank moves and the least time of it; the least times of the other ways.
std::string to_text(const std::vector<Simulated>& all);

}  // namespace ferry::app
