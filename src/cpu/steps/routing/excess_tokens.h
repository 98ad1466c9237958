// A dispatch to which one rank gives more tokens than max_tokens, on CPU ranks. The routing of that rank is a header
// only, which says how many tokens it has. So all ranks refuse the dispatch, and none waits for what never comes.
#pragma once

#include "exchange/exchange_steps.h"
#include "ferry/detail/protocol/dispatch_receive.h"

namespace ferry::cpu {

// In place of publish_routing (I2) and of all messages.
template <ThreadGroup G, SerialFabric F>
void publish_excess(const Plan& plan, F& fabric, const G& g, const DispatchArgs& in, Epoch routing) {
  const std::size_t header = plan.map.header(routing, plan.rank);
  if (g.thread() == 0)
    *reinterpret_cast<RoutingHeader*>(fabric.local(header)) =
        RoutingHeader{static_cast<std::uint32_t>(in.num_tokens), in.scale()};
  g.sync();
  for (int peer = 0; peer < plan.shape.ranks; ++peer)
    if (peer != plan.rank && !plan.is_masked(peer))
      fabric.put(g, peer, header, fabric.local(header), sizeof(RoutingHeader));
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.routed(plan.rank), routing, plan.masked);
}

template <Fabric F>
bool has_excess(const Plan& plan, const F& fabric, Epoch routing, int source) {
  return tokens_of(plan, fabric, routing, source) > plan.shape.max_tokens;
}

// The smallest rank with too many tokens, -1: none. Relies on I2.
template <Fabric F>
int source_of_excess(const Plan& plan, const F& fabric, Epoch routing) {
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (has_excess(plan, fabric, routing, source)) return source;
  return -1;
}

// Waits for all messages of a dispatch that is refused. So nothing is on its way to this rank when the call returns, as
// after any other dispatch, and the exchange may be destroyed. False: a rank did not come. Relies on I2 and I5.
template <ReceiveStep S>
bool drain_messages(const S& step, const SharedTokens& shared, FixedShare share) {
  const Plan& plan = step.plan;
  const ExpertRange mine = plan.experts_of(plan.rank);
  const auto comes = [&](TokenAt at) {
    if (at.source == plan.rank && plan.shared_groups != 0 && at.token >= shared.begin && at.token < shared.end)
      return true;
    const RoutingEntry* entries = entries_of(plan, step.fabric, step.routing, at);
    for (int k = 0; k < plan.shape.top_k; ++k)
      if (mine.contains(plan.code.expert(entries[k].code))) return true;
    return false;
  };
  for (int source = 0; source < plan.shape.ranks; ++source) {
    if (has_excess(plan, step.fabric, step.routing, source)) continue;
    const int tokens = tokens_of(plan, step.fabric, step.routing, source);
    for (int token = share.index; token < tokens; token += share.count)
      if (comes({source, token}) && !await_message(step, {source, token})) return false;
  }
  return true;
}

template <Fabric F>
[[noreturn]] void refuse_excess(const Plan& plan, const F& fabric, Epoch routing, int source) {
  throw DispatchRefused::too_many_tokens(
      plan.rank, source, static_cast<std::uint32_t>(tokens_of(plan, fabric, routing, source)), plan.shape.max_tokens);
}

}  // namespace ferry::cpu
