// The input scale of a dispatch, which must be the same on all ranks where the format uses one: experts decode the rows
// of all sources with one number.
#pragma once

#include <string>

#include "exchange/exchange_steps.h"
#include "ferry/detail/protocol/round.h"

namespace ferry::cpu {

// Throws DispatchRefused where the scale of a source is not this rank's own. If any two differ, every rank finds one,
// so all ranks refuse the same dispatch. Relies on I2.
template <Fabric F>
void require_same_input_scale(const Plan& plan, const F& fabric, Epoch routing) {
  const auto scale_of = [&](int source) {
    return reinterpret_cast<const RoutingHeader*>(fabric.local(plan.map.header(routing, source)))->input_scale;
  };
  const float own = scale_of(plan.rank);
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (!plan.is_masked(source) && scale_of(source) != own)
      throw DispatchRefused(plan.rank, "input_scale is " + std::to_string(own) + " here and " +
                                           std::to_string(scale_of(source)) + " on rank " + std::to_string(source) +
                                           "; it must be the same on all ranks");
}

}  // namespace ferry::cpu
