// What came in a dispatch. It follows only from its row starts.
#pragma once

#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/exchange.h"

namespace ferry {

// Where the rows of a dispatch begin. `source_offsets`: only of by_source.
struct FoundStarts {
  RowOrder order;
  const RowStarts& starts;
  const std::uint32_t* source_offsets;
};

// RowCounts::rows.
inline std::int64_t least_capacity(const Plan& plan, const FoundStarts& found) {
  return found.order == RowOrder::by_source ? found.source_offsets[plan.shape.ranks]
                                            : found.starts.group[plan.groups()];
}

// Rows of the experts that came from `source`.
inline std::int64_t expert_rows_from(const Plan& plan, const RowStarts& starts, int source) {
  const int experts = plan.local_experts();
  std::int64_t rows = 0;
  for (int local = 0; local < experts; ++local) {
    const std::uint32_t end = source + 1 < plan.shape.ranks ? starts.of_source[(source + 1) * experts + local]
                                                            : starts.filled[local + plan.shared_groups];
    rows += end - starts.of_source[source * experts + local];
  }
  return rows;
}

inline RowCounts counts_of(const Plan& plan, const FoundStarts& found) {
  RowCounts counts;
  counts.rows = least_capacity(plan, found);
  counts.by_expert.assign(found.starts.filled, found.starts.filled + plan.groups());
  for (int source = 0; source < plan.shape.ranks; ++source) {
    const std::uint32_t* offsets = found.source_offsets;
    counts.by_source.push_back(found.order == RowOrder::by_source ? offsets[source + 1] - offsets[source]
                                                                  : expert_rows_from(plan, found.starts, source));
  }
  if (plan.shared_groups != 0) counts.by_source[static_cast<std::size_t>(plan.rank)] += found.starts.filled[0];
  return counts;
}

}  // namespace ferry
