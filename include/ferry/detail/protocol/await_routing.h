// Dispatch: the tables of all sources are here, and every rank has begun this dispatch (I1). All backends run this
// text: CPU ranks before they find row starts, one block of a GPU beside those that lay rows out.
#pragma once

#include "ferry/detail/protocol/step.h"

namespace ferry {

// Relies on I2: after true, header, table and counts of every source may be read.
template <ThreadGroup G, Fabric F>
FERRY_HD bool await_routing(const Plan& plan, F& fabric, const G& g, Epoch epoch) {
  const auto word = [&](int source) { return plan.map.routed(source); };
  const auto site = [&](int source) { return WaitSite{Operation::dispatch, Phase::routing, source, -1}; };
  return fabric.wait_for_each(g, plan.shape.ranks, word, epoch, site, plan.masked);
}

}  // namespace ferry
