#include "cpu/calls/overflow_report.h"

#include <utility>

namespace ferry::cpu {

void OverflowReport::note(std::uint32_t dropped, const RowsOut& out) {
  if (dropped == 0) return;
  const bool is_padded = out.order == RowOrder::padded;
  untold_ = {untold_.dispatches + 1, dropped, is_padded, is_padded ? out.expert_stride : out.row_capacity};
}

void OverflowReport::tell(int rank) {
  if (untold_.dispatches != 0) refuse_overflow(rank, std::exchange(untold_, {}));
}

}  // namespace ferry::cpu
