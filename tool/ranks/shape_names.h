// Shapes that cannot work are refused in the words of the command that was asked for one.
#pragma once

#include <string>

#include "ferry/shape.h"

namespace ferry::app {

// What gives each value: an option, or what of a file.
struct ShapeNames {
  std::string ranks = "--ranks";
  std::string experts = "--experts";
  std::string top_k = "--top-k";
  std::string tokens = "--tokens";
  std::string hidden = "--hidden";
};

// Throws Error(invalid_argument) exactly where require_valid does.
void require_shape(const Shape& shape, const ShapeNames& names = {});

}  // namespace ferry::app
