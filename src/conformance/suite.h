// The conformance suite: what every target must do, as cases that any target can run. It needs no test framework, so
// `ferry verify` runs it on a user's machine. Every case computes all inputs from seeds, on every rank alike, and each
// rank checks its own outputs; so ranks may be threads or processes.
#pragma once

#include <vector>

#include "conformance/target/case.h"
#include "conformance/target/target.h"

namespace ferry::conformance {

const std::vector<Case>& all_cases();

}  // namespace ferry::conformance
