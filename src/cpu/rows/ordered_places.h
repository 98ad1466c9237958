// Where the rows of a dispatch lie on a CPU rank, and in which order.
#pragma once

#include <cstdint>

#include "exchange/sizes/row_counts.h"
#include "ferry/detail/protocol/contracts/row_places.h"
#include "ferry/row_order.h"

namespace ferry::cpu {

struct OrderedPlaces : RowPlaces {
  RowOrder order = RowOrder::by_expert;
};

inline FoundStarts starts_of(const OrderedPlaces& places) {
  return {places.order, places.starts, places.by_source.offsets};
}

// Rows that came, without those that only fill groups up.
inline std::uint32_t rows_that_came(const Plan& plan, const RowStarts& starts) {
  std::uint32_t rows = 0;
  for (int group = 0; group < plan.groups(); ++group) rows += starts.filled[group];
  return rows;
}

}  // namespace ferry::cpu
