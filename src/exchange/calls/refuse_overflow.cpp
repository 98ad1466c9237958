#include "exchange/calls/refuse_overflow.h"

#include <fmt/format.h>

#include "ferry/error.h"

namespace ferry {

void refuse_overflow(int rank, const Overflows& overflows) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("rank {}: {} dispatch{} had more rows than room: in the newest one {} rows did not fit, "
                          "{} is {}. They were not written, and their results are zeros. Give larger outputs, or "
                          "Overflow::expected where that is meant",
                          rank, overflows.dispatches, overflows.dispatches == 1 ? "" : "es", overflows.rows,
                          overflows.is_padded ? "expert_stride" : "row_capacity", overflows.room));
}

}  // namespace ferry
