// What sources say of a dispatch besides its ids, and what must be the same on all ranks: the format, and the input
// scale where the format uses one. Experts decode the rows of all sources alike.
#pragma once

#include <string>

#include "exchange/exchange_steps.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

template <Fabric F>
const RoutingHeader& header_of(const Plan& plan, const F& fabric, Epoch routing, int source) {
  return *reinterpret_cast<const RoutingHeader*>(fabric.local(plan.map.header(routing, source)));
}

// A source that took another format than this rank, -1: none. If any two differ, every rank finds one, so all ranks
// refuse the same dispatch, before they look for room: rows of another format may begin elsewhere. Relies on I2.
template <Fabric F>
int source_of_other_format(const Plan& plan, const F& fabric, Epoch routing) {
  const std::uint32_t own = header_of(plan, fabric, routing, plan.rank).format;
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (!plan.is_masked(source) && header_of(plan, fabric, routing, source).format != own) return source;
  return -1;
}

template <Fabric F>
[[noreturn]] void refuse_format(const Plan& plan, const F& fabric, Epoch routing, int source) {
  const auto format_of = [&](int of) { return std::to_string(header_of(plan, fabric, routing, of).format); };
  throw DispatchRefused(plan.rank, "format is " + format_of(plan.rank) + " here and " + format_of(source) +
                                       " on rank " + std::to_string(source) +
                                       "; all ranks of a dispatch take the same");
}

// Throws DispatchRefused where the scale of a source is not this rank's own. If any two differ, every rank finds one,
// so all ranks refuse the same dispatch. Relies on I2.
template <Fabric F>
void require_same_input_scale(const Plan& plan, const F& fabric, Epoch routing) {
  const auto scale_of = [&](int source) { return header_of(plan, fabric, routing, source).input_scale; };
  const float own = scale_of(plan.rank);
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (!plan.is_masked(source) && scale_of(source) != own)
      throw DispatchRefused(plan.rank, "input_scale is " + std::to_string(own) + " here and " +
                                           std::to_string(scale_of(source)) + " on rank " + std::to_string(source) +
                                           "; it must be the same on all ranks");
}

}  // namespace ferry::cpu
