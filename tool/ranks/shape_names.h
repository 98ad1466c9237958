// Shapes that cannot work are refused in the words of the command that was asked for one.
#pragma once

#include <string>

#include "ferry/exchange.h"
#include "ferry/shape.h"

namespace ferry::app {

// What gives each value: an option, or what of a file.
struct ShapeNames {
  std::string ranks = "--ranks";
  std::string experts = "--experts";
  std::string top_k = "--top-k";
  std::string tokens = "--tokens";
  std::string hidden = "--hidden";
  std::string experts_are;  // who says how many, as "the default of --experts"; empty: the option
};

// Throws Error(invalid_argument) exactly where require_valid does.
void require_shape(const Shape& shape, const ShapeNames& names = {});

// Throws Error(invalid_argument) where --rows does not go with another option. Options that fit are the library's to
// check. `combine`: by_rank or exact.
void require_rows_fit(ExchangeOptions options, Reduction combine);

}  // namespace ferry::app
