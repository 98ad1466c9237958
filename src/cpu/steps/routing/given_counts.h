// A dispatch by counts: a source says to which ranks a token goes, and how many tokens each expert gets. It does not
// say which token an expert gets. The table names the first expert of each rank, so tokens, lists and results find
// their ways as in any other dispatch. The given counts travel beside the counts of the table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "exchange/exchange_steps.h"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

template <Fabric F>
void copy_given_counts(const Plan& plan, F& fabric, const std::int32_t* counts, Epoch routing) {
  std::copy(counts, counts + plan.shape.experts,
            reinterpret_cast<std::int32_t*>(fabric.local(plan.map.sent_given_counts(routing))));
}

// I2: `routed` follows.
template <ThreadGroup G, SerialFabric F>
void put_given_counts(const Plan& plan, F& fabric, const G& g, int peer, Epoch routing, std::uint64_t* bytes_sent) {
  const ExpertRange experts = plan.experts_of(peer);
  const std::size_t bytes = static_cast<std::size_t>(experts.count) * sizeof(std::int32_t);
  const std::size_t from =
      plan.map.sent_given_counts(routing) + static_cast<std::size_t>(experts.first) * sizeof(std::int32_t);
  fabric.put(g, peer, plan.map.given_counts(routing, plan.rank), fabric.local(from), bytes);
  if (peer != plan.rank && g.thread() == 0) bytes_sent[peer] += bytes;
}

// What all sources gave for this rank's experts. Relies on I2.
template <Fabric F>
std::vector<std::int64_t> given_counts_of(const Plan& plan, const F& fabric, Epoch routing) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(plan.local_experts()));
  for (int source = 0; source < plan.shape.ranks; ++source) {
    if (plan.is_masked(source)) continue;
    const auto* given = reinterpret_cast<const std::int32_t*>(fabric.local(plan.map.given_counts(routing, source)));
    for (std::size_t local = 0; local < sums.size(); ++local) sums[local] += given[local];
  }
  return sums;
}

// Throws DispatchRefused where a source has ids and this rank has counts, or the other way round. If any two differ,
// every rank finds one. Relies on I2.
template <Fabric F>
void require_counts_alike(const Plan& plan, const F& fabric, Epoch routing) {
  const auto by_counts = [&](int source) {
    const auto* header = reinterpret_cast<const RoutingHeader*>(fabric.local(plan.map.header(routing, source)));
    return header->by_counts != 0;
  };
  const bool own = by_counts(plan.rank);
  for (int source = 0; source < plan.shape.ranks; ++source)
    if (!plan.is_masked(source) && by_counts(source) != own)
      throw DispatchRefused::counts_differ(plan.rank, own, source);
}

}  // namespace ferry::cpu
