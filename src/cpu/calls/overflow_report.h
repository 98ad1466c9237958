// OverflowReport: rows for which there was no room, until check() has told of them (Overflow::reported).
#pragma once

#include <cstdint>

#include "exchange/calls/refuse_overflow.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

class OverflowReport {
 public:
  // Notes how many rows of one dispatch overflowed.
  void note(std::uint32_t dropped, const RowsOut& out);
  // Throws Error(invalid_argument) where there were any since the last time.
  void tell(int rank);

 private:
  Overflows untold_;
};

}  // namespace ferry::cpu
