// What came in a dispatch, from its row starts alone.
#pragma once

#include "cpu/lay_out.h"
#include "ferry/exchange.h"

namespace ferry::cpu {

// RowCounts::rows.
inline std::int64_t least_capacity(const Plan& plan, const RowPlaces& places) {
  return places.order == RowOrder::by_source ? places.by_source.offsets[plan.shape.ranks]
                                             : places.starts.group[plan.groups()];
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

inline RowCounts counts_of(const Plan& plan, const RowPlaces& places) {
  RowCounts counts;
  counts.rows = least_capacity(plan, places);
  counts.by_expert.assign(places.starts.filled, places.starts.filled + plan.groups());
  for (int source = 0; source < plan.shape.ranks; ++source) {
    const std::uint32_t* offsets = places.by_source.offsets;
    counts.by_source.push_back(places.order == RowOrder::by_source ? offsets[source + 1] - offsets[source]
                                                                   : expert_rows_from(plan, places.starts, source));
  }
  if (plan.shared_groups != 0) counts.by_source[static_cast<std::size_t>(plan.rank)] += places.starts.filled[0];
  return counts;
}

}  // namespace ferry::cpu
