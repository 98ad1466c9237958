// How a failure reads.
#include "conformance/target/case.h"

#include <utility>

namespace ferry::conformance {

Failure::Failure(int rank, std::string place, std::string expected, std::string got)
    : std::runtime_error("rank " + std::to_string(rank) + ", " + place + ": expected " + expected + ", got " + got),
      rank_(rank),
      place_(std::move(place)),
      expected_(std::move(expected)),
      got_(std::move(got)) {}

}  // namespace ferry::conformance
