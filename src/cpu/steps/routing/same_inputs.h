// What sources say of a dispatch besides its ids, and what must be the same on all ranks: the format, and the input
// scale where the format uses one. Experts decode the rows of all sources alike.
#pragma once

#include <string>

#include "exchange/exchange_steps.h"
#include "ferry/detail/layout/scale_word.h"
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

// Throws DispatchRefused where the scale of a source, scale_of(source), is not this rank's own. If any two differ,
// every rank finds one, so all ranks refuse the same dispatch.
template <class ScaleOf>
void require_same_scales(const Plan& plan, const ScaleOf& scale_of) {
  const float own = scale_of(plan.rank);
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (!plan.is_masked(source) && scale_of(source) != own)
      throw DispatchRefused(plan.rank, "input_scale is " + std::to_string(own) + " here and " +
                                           std::to_string(scale_of(source)) + " on rank " + std::to_string(source) +
                                           "; it must be the same on all ranks");
}

// Headers say it with the routing. Relies on I2.
template <Fabric F>
void require_same_input_scale(const Plan& plan, const F& fabric, Epoch routing) {
  require_same_scales(plan, [&](int source) { return header_of(plan, fabric, routing, source).input_scale; });
}

// I26: a replay has no header. The word comes ahead of `dispatching`.
template <SerialFabric F>
void put_input_scale(const Plan& plan, F& fabric, const SerialGroup& g, Epoch message, float scale) {
  const std::size_t at = plan.map.input_scale(message, plan.rank);
  *reinterpret_cast<Epoch*>(fabric.local(at)) = scale_word(message, scale);
  for (int peer = 0; peer < plan.shape.ranks; ++peer)
    if (peer != plan.rank && !plan.is_masked(peer)) fabric.put(g, peer, at, fabric.local(at), sizeof(Epoch));
}

// After await_dispatching.
template <Fabric F>
void require_same_replayed_scale(const Plan& plan, const F& fabric, Epoch message) {
  require_same_scales(plan, [&](int source) {
    return scale_of(*reinterpret_cast<const Epoch*>(fabric.local(plan.map.input_scale(message, source))));
  });
}

}  // namespace ferry::cpu
