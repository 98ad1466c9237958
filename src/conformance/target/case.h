// A case that any target can run, and how it fails.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "conformance/target/target.h"

namespace ferry::conformance {

struct Case {
  std::string name;  // letters, digits, '_' and '/'
  std::string what;
  bool quick = false;  // in the subset for slow builds such as ThreadSanitizer
  std::function<void(const Target&)> run;
};

// Thrown by a case that the target fails.
class Failure : public std::runtime_error {
 public:
  Failure(int rank, std::string place, std::string expected, std::string got);

  int rank() const { return rank_; }
  const std::string& place() const { return place_; }
  const std::string& expected() const { return expected_; }
  const std::string& got() const { return got_; }

 private:
  int rank_;
  std::string place_;
  std::string expected_;
  std::string got_;
};

// Thrown by a case, or a round, that this target cannot run; says why.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The case with each of its rounds skipped for itself: it throws Skipped only where no round ran.
Case skipped_by_rounds(Case each);

}  // namespace ferry::conformance
