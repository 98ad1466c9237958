// What the values of options that several commands share mean, and which are refused.
#pragma once

#include <cstdint>
#include <string>

#include "ferry/exchange.h"

namespace ferry::app {

// Throws Error(invalid_argument).
Reduction reduction_named(const std::string& name);
// Throws Error(invalid_argument) that names the option unless low <= value <= high.
void require_in_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high);
void require_input_scale(float input_scale);

}  // namespace ferry::app
