// The rows of one rank, for those who read them after a round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ferry/exchange.h"

namespace ferry::app {

// The output of one rank's dispatch, as it is when the experts are done with it.
struct RankRows {
  const RowLayout* layout;
  std::int64_t row_capacity;
  std::byte* payload;
  std::byte* scales;
  const std::int32_t* src_info;
  std::span<const std::uint32_t> row_offsets;
  std::span<const std::int32_t> expert_ids;
  std::span<const std::uint32_t> scales_offsets;  // empty but for tiled scales
};
// Called on each rank's thread after its round. May change the payload and the scales.
using RowsObserver = std::function<void(int rank, const RankRows& rows)>;

}  // namespace ferry::app
