// A dispatch leaves a handle: its routing, copied out of the memory of the exchange. As
// cpu/steps/routing/keep_routing.h.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {

// The rows and slots of the tokens that came. Threads take entries in turn.
__device__ inline void keep_arrivals(const KeepParams& p, KeptRouting to, const FixedShare& threads) {
  const int top_k = p.plan.shape.top_k;
  const int max_tokens = p.plan.shape.max_tokens;
  for (int source = 0; source < p.plan.shape.ranks; ++source) {
    const int entries = static_cast<int>(p.from.starts.tokens[source]) * top_k;
    const std::size_t first = static_cast<std::size_t>(source) * static_cast<std::size_t>(max_tokens);
    for (int i = threads.index; i < entries; i += threads.count) {
      const std::size_t index = first * static_cast<std::size_t>(top_k) + static_cast<std::size_t>(i);
      to.rows[index] = p.from.rows[index];
      const int token = p.plan.by_top_k.quotient(i);
      if (token * top_k == i)
        to.slots[first + static_cast<std::size_t>(token)] = p.from.slots[first + static_cast<std::size_t>(token)];
    }
  }
}

// Behind a replay with late weights: `to` has all of its handle already, and numbers results by the mask of that
// handle, whoever is masked by now. Weights of tokens that came are new, or the same. Threads take entries in turn.
__device__ inline void keep_weights(const KeepParams& p, KeptRouting to, const RoutingEntry* own,
                                    const FixedShare& threads) {
  const int top_k = p.plan.shape.top_k;
  for (int source = 0; source < p.plan.shape.ranks; ++source) {
    const int entries = static_cast<int>(p.from.starts.tokens[source]) * top_k;
    const std::size_t first =
        static_cast<std::size_t>(source) * static_cast<std::size_t>(p.plan.shape.max_tokens * top_k);
    for (int i = threads.index; i < entries; i += threads.count)
      to.rows[first + static_cast<std::size_t>(i)].weight = p.from.rows[first + static_cast<std::size_t>(i)].weight;
  }
  for (int i = threads.index; i < p.header.num_tokens * top_k; i += threads.count)
    if (p.plan.code.expert(own[i].code) >= 0) to.own[i].weight = to.weights[i] = own[i].weight;
  if (threads.index != 0) return;
  to.header->has_weights = p.header.has_weights;
  to.header->row_room = p.header.row_room;
}

// A block of a grid.
__device__ inline void keep_routing(const KeepParams& p) {
  if (p.state->has_stopped()) return;
  const KeptRouting to = kept_routing_at(p.plan, p.to);
  const FixedShare threads = threads_of_grid();
  const Epoch routing = load_relaxed(p.state->dispatched);
  const auto* own = reinterpret_cast<const RoutingEntry*>(p.heap + p.plan.map.table(routing, p.plan.rank));
  if (p.has_old) return keep_weights(p, to, own, threads);
  keep_arrivals(p, to, threads);
  for (int i = threads.index; i < p.header.num_tokens * p.plan.shape.top_k; i += threads.count) {
    const RoutingEntry entry = own[i];
    const int expert = p.plan.code.expert(entry.code);
    to.own[i] = entry;
    to.ids[i] = expert < 0 ? -1 : expert + p.plan.first_id;
    to.weights[i] = entry.weight;
  }
  for (int i = threads.index; i < row_start_words(p.plan); i += threads.count)
    to.starts.of_source[i] = p.from.starts.of_source[i];
  for (int peer = threads.index; peer < p.plan.shape.ranks; peer += threads.count) {
    to.masked[peer] = p.plan.is_masked(peer) ? 1 : 0;
    to.results_before[peer] = {0, 0};  // CPU ranks pack results, and GPUs do not (I9)
  }
  if (threads.index != 0) return;
  *to.header = p.header;
  to.header->routing |= routing;  // it has the exchange's number
  to.header->num_rows = p.from.starts.group[p.plan.groups()];
}

}  // namespace ferry::cuda
