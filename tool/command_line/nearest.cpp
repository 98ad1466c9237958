#include "tool/command_line/nearest.h"

#include <fmt/format.h>

namespace ferry::app {

std::string not_one_of(const std::string& option, const std::string& value, std::span<const std::string> known) {
  return fmt::format("{} {}: must be one of {}{}", option, value, fmt::join(known, ", "), did_you_mean(value, known));
}

}  // namespace ferry::app
