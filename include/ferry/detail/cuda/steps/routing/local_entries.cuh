// Which entries of a token that came name an expert of this rank, whether or not their rows had room (Overflow).
#pragma once

#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

// Of the newest dispatch, from the tables that its sources sent; of a handle, which outlives them, from its rows. There
// a token by_source has one.
struct LocalEntries {
  const Plan& plan;
  const std::byte* heap;  // this rank's symmetric memory
  Epoch routing;          // of the newest dispatch
  const HandleRow* kept;  // of a handle; else null

  __device__ bool has(TokenAt at, int k) const {
    const auto top_k = static_cast<std::size_t>(plan.shape.top_k);
    const std::size_t entry = static_cast<std::size_t>(at.token) * top_k + static_cast<std::size_t>(k);
    if (kept != nullptr) {
      const std::size_t before =
          static_cast<std::size_t>(at.source) * static_cast<std::size_t>(plan.shape.max_tokens) * top_k;
      return kept[before + entry].row != kNoRow;
    }
    const auto* table = reinterpret_cast<const RoutingEntry*>(heap + plan.map.table(routing, at.source));
    return plan.experts_of(plan.rank).contains(plan.code.expert(table[entry].code));
  }
};

}  // namespace ferry::cuda
