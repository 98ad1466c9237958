// JSON as commands print it: keys in the order in which they were set. Who makes or reads a value includes
// ferry/table.h.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace ferry::app {

using Json = nlohmann::ordered_json;

}  // namespace ferry::app
