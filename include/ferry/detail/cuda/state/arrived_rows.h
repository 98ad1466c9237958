// ArrivedRows: the rows of every token that arrived. Dispatch leaves them in device memory for its combine. They are
// not double-buffered: combine of e reads them before dispatch e + 1 overwrites them, since both run in the order of
// their stream. A combine that is given a handle reads the rows there.
#pragma once

#include <cstdint>

#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

struct ArrivedRows {
  HandleRow* rows = nullptr;      // [ranks, tokens, top_k]
  std::uint8_t* slots = nullptr;  // [ranks, tokens]: by_rank, the result slot of this rank's partial sum (I9)
  RowStartsToFill starts;         // in one array (row_starts_at)
};

// I11: nothing goes to a source that the mask takes out since the handle's dispatch.
FERRY_HD inline int tokens_to_answer(const Plan& plan, const ArrivedRows& arrived, int source) {
  return plan.is_masked(source) ? 0 : static_cast<int>(arrived.starts.tokens[source]);
}

}  // namespace ferry::cuda
