// What check() says of rows for which there was no room (Overflow::reported).
#pragma once

#include <cstdint>

namespace ferry {

// What overflowed in the dispatches since check() last reported it.
struct Overflows {
  std::uint32_t dispatches = 0;
  std::uint32_t rows = 0;  // of the newest of them
  bool is_padded = false;
  std::int64_t room = 0;  // row_capacity of that one; padded: its expert_stride
};

// Throws Error(invalid_argument).
[[noreturn]] void refuse_overflow(int rank, const Overflows& overflows);

}  // namespace ferry
