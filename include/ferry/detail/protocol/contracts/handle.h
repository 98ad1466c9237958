// KeptRouting: the parts of a handle, which a dispatch writes and later calls read. A handle holds what one rank needs
// to know of one routing, and no address: row numbers, its own tokens' experts, and the slots of its results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry {

// A step that fills it takes it by value.
struct KeptRouting {
  HandleHeader* header = nullptr;
  std::uint8_t* masked = nullptr;  // [ranks]: the mask of its dispatch
  RowStartsToFill starts;
  RoutingEntry* own = nullptr;              // [max_tokens, top_k]: this rank's own table
  std::int32_t* ids = nullptr;              // [max_tokens, top_k]: the ids of its entries, -1: none
  HandleRow* rows = nullptr;                // [ranks, max_tokens, top_k]: of every token that came
  std::uint8_t* slots = nullptr;            // [ranks, max_tokens]: by_rank, the slot of this rank's result (I9)
  ResultsBefore* results_before = nullptr;  // [ranks]
  float* weights = nullptr;                 // [max_tokens, top_k]: the weights of `own`; written and read by GPUs only

  FERRY_HD std::size_t index_of(const Plan& plan, TokenAt at) const {
    return static_cast<std::size_t>(at.source) * static_cast<std::size_t>(plan.shape.max_tokens) +
           static_cast<std::size_t>(at.token);
  }
};

// Bytes of the parts, in their order, each from a multiple of 16 on.
struct HandleSizes {
  static constexpr int kParts = 9;
  std::size_t end[kParts];

  // `ranks` and `local_experts` as the protocol counts them (skip_a2a: one rank).
  FERRY_HD constexpr HandleSizes(int ranks, int max_tokens, int top_k, int local_experts, int shared_groups) : end{} {
    const auto r = static_cast<std::size_t>(ranks);
    const std::size_t entries = static_cast<std::size_t>(max_tokens) * static_cast<std::size_t>(top_k);
    const auto words = static_cast<std::size_t>(row_start_words(ranks, local_experts, local_experts + shared_groups));
    const std::size_t bytes[kParts] = {sizeof(HandleHeader),
                                       r,
                                       words * sizeof(std::uint32_t),
                                       entries * sizeof(RoutingEntry),
                                       entries * sizeof(std::int32_t),
                                       r * entries * sizeof(HandleRow),
                                       r * static_cast<std::size_t>(max_tokens),
                                       r * sizeof(ResultsBefore),
                                       entries * sizeof(float)};
    std::size_t at = 0;
    for (int part = 0; part < kParts; ++part) end[part] = at = (at + bytes[part] + 15) / 16 * 16;
  }
  FERRY_HD explicit HandleSizes(const Plan& plan)
      : HandleSizes(plan.shape.ranks, plan.shape.max_tokens, plan.shape.top_k, plan.local_experts(),
                    plan.shared_groups) {}
  FERRY_HD constexpr std::size_t bytes() const { return end[kParts - 1]; }
};

FERRY_HD inline KeptRouting kept_routing_at(const Plan& plan, std::byte* handle) {
  const HandleSizes sizes(plan);
  KeptRouting kept;
  kept.header = reinterpret_cast<HandleHeader*>(handle);
  kept.masked = reinterpret_cast<std::uint8_t*>(handle + sizes.end[0]);
  kept.starts = row_starts_at(plan, reinterpret_cast<std::uint32_t*>(handle + sizes.end[1]));
  kept.own = reinterpret_cast<RoutingEntry*>(handle + sizes.end[2]);
  kept.ids = reinterpret_cast<std::int32_t*>(handle + sizes.end[3]);
  kept.rows = reinterpret_cast<HandleRow*>(handle + sizes.end[4]);
  kept.slots = reinterpret_cast<std::uint8_t*>(handle + sizes.end[5]);
  kept.results_before = reinterpret_cast<ResultsBefore*>(handle + sizes.end[6]);
  kept.weights = reinterpret_cast<float*>(handle + sizes.end[7]);
  return kept;
}
// For calls that only read: nothing is written through the view.
FERRY_HD inline KeptRouting kept_routing_at(const Plan& plan, const std::byte* handle) {
  return kept_routing_at(plan, const_cast<std::byte*>(handle));
}

}  // namespace ferry
