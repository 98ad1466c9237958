// Whether tests try all combinations of options (./dev test --all), which takes hours, in place of pairs of them.
#pragma once

#include <cstdlib>

namespace ferry::test {

inline bool wants_all() {
  const char* const value = std::getenv("FERRY_TEST_ALL");
  return value != nullptr && *value != '\0';
}

}  // namespace ferry::test
