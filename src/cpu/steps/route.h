// Routing on the CPU: which entry of a token goes where, and how all ranks learn of it. GPUs restate these steps by a
// grid in ferry/detail/cuda/steps/route.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/steps/routing/given_counts.h"
#include "cpu/steps/routing/token_lists.h"
#include "ferry/detail/layout/call_word.h"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

// I1, I22: tells every peer that dispatch `message` has begun here, so this rank has ended all calls before it. `mark`
// names the routing that it repeats.
template <ThreadGroup G, SerialFabric F>
void post_dispatching(const Plan& plan, F& fabric, const G& g, Epoch message, std::uint32_t mark) {
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.dispatching(plan.rank), call_word(message, mark),
                                plan.masked);
}

// I1: a dispatch ends only when it has begun everywhere. So the next one may write what the one before it read.
template <ThreadGroup G, Fabric F>
bool await_dispatching(const Plan& plan, F& fabric, const G& g, Epoch message) {
  const auto word = [&](int peer) { return plan.map.dispatching(peer); };
  const auto site = [&](int peer) { return WaitSite{Operation::dispatch, Phase::dispatching, peer, -1}; };
  return fabric.wait_for_each(g, plan.shape.ranks, word, call_word(message, 0), site, plan.masked);
}

// I3: gives each (token, k) its position within its expert and writes this source's own table, which it keeps for
// combine; for rows by_source the token lists, too. The count is stable: no slot is reserved, so the order never
// varies. Returns how many entries were dropped.
template <Fabric F>
std::uint64_t route_entries(const Plan& plan, F& fabric, const DispatchArgs& in, Epoch routing) {
  auto* counts = reinterpret_cast<std::uint32_t*>(fabric.local(plan.map.sent_counts(routing)));
  auto* table = reinterpret_cast<RoutingEntry*>(fabric.local(plan.map.table(routing, plan.rank)));
  for (int expert = 0; expert < plan.shape.experts; ++expert) counts[expert] = 0;
  std::uint64_t dropped = 0;
  for (int token = 0; token < in.num_tokens; ++token) {
    for (int k = 0; k < plan.shape.top_k; ++k) {
      const std::int64_t index = static_cast<std::int64_t>(token) * plan.shape.top_k + k;
      bool is_dropped = false;
      const int expert = routed_expert(plan, in.ids.at(index), &is_dropped);
      dropped += is_dropped ? 1 : 0;
      table[index].code = expert < 0 ? 0 : plan.code.pack(expert, counts[expert]++);
      table[index].weight = expert < 0 ? 0.0f : in.weights.at(token, k);
    }
  }
  if (plan.map.has_token_lists()) list_tokens(plan, fabric, in.num_tokens, routing);
  if (in.expert_counts != nullptr) copy_given_counts(plan, fabric, in.expert_counts, routing);
  return dropped;
}

// I2: header, table, counts and token list of this source are at a peer before its `routed` word says so.
template <ThreadGroup G, SerialFabric F>
void publish_routing(const Plan& plan, F& fabric, const G& g, const DispatchArgs& in, Epoch routing,
                     std::uint64_t* bytes_sent) {
  const std::size_t table = plan.map.table(routing, plan.rank);
  const std::size_t header = plan.map.header(routing, plan.rank);
  const std::size_t table_bytes = static_cast<std::size_t>(in.num_tokens) * plan.shape.top_k * sizeof(RoutingEntry);
  if (g.thread() == 0) {
    RoutingHeader own{static_cast<std::uint32_t>(in.num_tokens), in.scale()};
    own.by_counts = in.expert_counts != nullptr ? 1 : 0;
    own.format = static_cast<std::uint32_t>(in.format);
    *reinterpret_cast<RoutingHeader*>(fabric.local(header)) = own;
  }
  g.sync();
  for (int step = 1; step <= plan.shape.ranks; ++step) {
    const int peer = (plan.rank + step) % plan.shape.ranks;  // itself last, and not all ranks the same one first
    if (plan.is_masked(peer)) continue;
    const ExpertRange experts = plan.experts_of(peer);
    const std::size_t count_bytes = static_cast<std::size_t>(experts.count) * sizeof(std::uint32_t);
    const std::size_t counts =
        plan.map.sent_counts(routing) + static_cast<std::size_t>(experts.first) * sizeof(std::uint32_t);
    fabric.put(g, peer, plan.map.counts(routing, plan.rank), fabric.local(counts), count_bytes);
    if (in.expert_counts != nullptr) put_given_counts(plan, fabric, g, peer, routing, bytes_sent);
    if (plan.map.has_token_lists()) {
      const std::size_t list_bytes = token_list_words(in.num_tokens) * sizeof(std::uint64_t);
      fabric.put(g, peer, plan.map.token_list(routing, plan.rank),
                 fabric.local(plan.map.sent_token_list(routing, peer)), list_bytes);
      if (peer != plan.rank && g.thread() == 0) bytes_sent[peer] += list_bytes;
    }
    if (peer != plan.rank) {
      fabric.put(g, peer, table, fabric.local(table), table_bytes);
      fabric.put(g, peer, header, fabric.local(header), sizeof(RoutingHeader));
      if (g.thread() == 0) bytes_sent[peer] += table_bytes + sizeof(RoutingHeader) + count_bytes;
    }
  }
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.routed(plan.rank), routing, plan.masked);
}

}  // namespace ferry::cpu
