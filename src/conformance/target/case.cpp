// How a failure reads, and how a case is skipped.
#include "conformance/target/case.h"

#include <utility>

namespace ferry::conformance {

Failure::Failure(int rank, std::string place, std::string expected, std::string got)
    : std::runtime_error("rank " + std::to_string(rank) + ", " + place + ": expected " + expected + ", got " + got),
      rank_(rank),
      place_(std::move(place)),
      expected_(std::move(expected)),
      got_(std::move(got)) {}

Case skipped_by_rounds(Case each) {
  each.run = [run = std::move(each.run)](const Target& target) {
    RoundTally own;
    Target counted = target;
    if (counted.tally == nullptr) counted.tally = &own;
    run(counted);
    if (counted.tally->run == 0 && counted.tally->skipped != 0) throw Skipped(counted.tally->why_skipped);
  };
  return each;
}

}  // namespace ferry::conformance
