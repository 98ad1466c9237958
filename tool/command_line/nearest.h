// What is said of a value that is none of those known.
#pragma once

#include <span>
#include <string>

#include "base/nearest.h"

namespace ferry::app {

// "--format FP8: must be one of bf16, mxfp8; did you mean mxfp8?"
std::string not_one_of(const std::string& option, const std::string& value, std::span<const std::string> known);

}  // namespace ferry::app
