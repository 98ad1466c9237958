#include "tool/commands/options.h"

#include <fmt/core.h>

#include <cmath>

namespace ferry::app {

Reduction reduction_named(const std::string& name) {
  if (name == "exact") return Reduction::exact;
  if (name == "by_rank") return Reduction::by_rank;
  throw Error(ErrorKind::invalid_argument, fmt::format("--combine {}: must be exact or by_rank", name));
}

void require_in_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    throw Error(ErrorKind::invalid_argument, fmt::format("{} {}: must be {} to {}", option, value, low, high));
}

void require_input_scale(float input_scale) {
  if (!std::isfinite(input_scale) || input_scale <= 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--input-scale {}: must be finite and greater than 0", input_scale));
}

}  // namespace ferry::app
