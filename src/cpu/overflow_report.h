// OverflowReport: rows for which there was no room, until check() has told of them (Overflow::reported).
#pragma once

#include <cstdint>

#include "ferry/detail/protocol/round.h"

namespace ferry::cpu {

class OverflowReport {
 public:
  // Of a dispatch.
  void note(std::uint32_t dropped, const RowsOut& out);
  // Throws Error(invalid_argument) where there were any since the last time.
  void tell(int rank);

 private:
  int dispatches_ = 0;
  std::uint32_t rows_ = 0;         // of the newest of them
  std::int64_t row_capacity_ = 0;  // the same; padded: of an expert
  bool is_padded_ = false;
};

}  // namespace ferry::cpu
