// bytes_format by its name.
#pragma once

#include <optional>
#include <string_view>

#include "ferry/token_format.h"

namespace ferry {

// Nothing where the name is not that of such a format. Throws Error(invalid_argument) where it begins as one.
std::optional<AnyFormat> bytes_format_named(std::string_view name);

}  // namespace ferry
