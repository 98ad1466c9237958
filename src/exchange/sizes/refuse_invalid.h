// What shapes, options and formats are refused with before any rank is known.
#pragma once

#include <string>

#include "ferry/error.h"

namespace ferry {

[[noreturn]] inline void refuse_invalid(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, message);
}

}  // namespace ferry
