// Which third choice a test tries with two others.
#pragma once

#include <string_view>

#include "ferry/token_format.h"
#include "support/wants_all.h"

namespace ferry::test {

// One of `count`, by the numbers of the three: where each of the first two has as many choices, or more, each two meet.
// All of them with ./dev test --all.
inline bool meet(int first, int second, int third, int count) {
  return wants_all() || (first + second + third) % count == 0;
}

inline int number_of_results(std::string_view name) {
  int number = 0;
  for (const AnyFormat& format : result_formats()) {
    if (format.name() == name) break;
    ++number;
  }
  return number;
}

}  // namespace ferry::test
