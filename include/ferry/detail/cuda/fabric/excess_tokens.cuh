// Which rank has more tokens than a dispatch can take.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

// The smallest such rank, and how many it has; rank -1: none. Relies on I2, after await_routing. One thread.
__device__ inline ExcessTokens find_excess(const Plan& plan, const PeerLinks& links, Epoch routing) {
  for (int source = 0; source < plan.shape.ranks; ++source) {
    const auto& header = *reinterpret_cast<const RoutingHeader*>(links.own + plan.map.header(routing, source));
    if (!plan.is_masked(source) && header.excess_routing == routing) return {source, header.excess_tokens};
  }
  return {};
}

}  // namespace ferry::cuda
