#include "cpu/overflow_report.h"

#include <fmt/format.h>

#include <utility>

#include "ferry/error.h"

namespace ferry::cpu {

void OverflowReport::note(std::uint32_t dropped, const RowsOut& out) {
  if (dropped == 0) return;
  ++dispatches_;
  rows_ = dropped;
  is_padded_ = out.order == RowOrder::padded;
  row_capacity_ = is_padded_ ? out.expert_stride : out.row_capacity;
}

void OverflowReport::tell(int rank) {
  const int dispatches = std::exchange(dispatches_, 0);
  if (dispatches == 0) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("rank {}: {} dispatch{} had more rows than room: in the newest one {} rows did not fit, "
                          "{} is {}. They were not written, and their results are zeros. Give larger outputs, or "
                          "Overflow::expected where that is meant",
                          rank, dispatches, dispatches == 1 ? "" : "es", rows_,
                          is_padded_ ? "expert_stride" : "row_capacity", row_capacity_));
}

}  // namespace ferry::cpu
