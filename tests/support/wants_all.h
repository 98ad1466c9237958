// What tests try of all combinations of options: few, or all (./dev test --all), which takes hours.
#pragma once

#include <cstdlib>

#include "conformance/target/few_rounds.h"

namespace ferry::test {

inline bool wants_all() {
  const char* const value = std::getenv("FERRY_TEST_ALL");
  return value != nullptr && *value != '\0';
}

// A case where each of its rounds takes long: those that have each setting. Combinations are such a choice already.
inline void run_few_or_all(const conformance::Case& each, const conformance::Target& target) {
  if (wants_all() || each.name.starts_with("combinations/")) return each.run(target);
  run_few_rounds(each, target);
}

}  // namespace ferry::test
