// DispatchHandle: the rows of every token that arrived. Dispatch leaves them in device memory for its combine. It is
// not double-buffered: combine of e reads it before dispatch e + 1 overwrites it, since both run in the order of their
// stream.
#pragma once

#include <cstdint>

#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/protocol/round.h"

namespace ferry::cuda {

struct DispatchHandle {
  HandleRow* rows = nullptr;      // [ranks, tokens, top_k]
  std::uint8_t* slots = nullptr;  // [ranks, tokens]: by_rank, the result slot of this rank's partial sum (I9)
  RowStarts starts;               // in one array (row_starts_at)
};

}  // namespace ferry::cuda
