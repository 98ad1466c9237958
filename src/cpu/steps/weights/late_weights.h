// Late weights: router weights that come after the routing, with a combine of by_rank or with a replay. A rank says in
// each such call whether it gives some, and sends them ahead of all that needs them. GPUs restate it in
// ferry/detail/cuda/steps/weights/late_weights.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/steps/lookup/handle_lookup.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "ferry/detail/layout/late_weights.h"
#include "ferry/detail/protocol/contracts/args.h"
#include "ferry/detail/protocol/step.h"

namespace ferry::cpu {

// The late weights of all sources in one call. Relies on I24.
class LateWeights {
 public:
  template <Fabric F>
  LateWeights(const Plan& plan, const F& fabric, int copy)
      : first_(fabric.local(plan.map.late_weights(copy, 0))),
        source_bytes_(plan.map.late_weights_bytes()),
        top_k_(plan.shape.top_k) {}

  bool are_given(int source) const { return reinterpret_cast<const LateHeader*>(of(source))->is_given != 0; }
  float at(TokenAt at, int k) const {
    const auto* values = reinterpret_cast<const float*>(of(at.source) + sizeof(LateHeader));
    return values[static_cast<std::ptrdiff_t>(at.token) * top_k_ + k];
  }

 private:
  const std::byte* of(int source) const { return first_ + static_cast<std::size_t>(source) * source_bytes_; }

  const std::byte* first_;
  std::size_t source_bytes_;
  int top_k_;
};

// Another look-up whose rows have late weights, where their source gave some.
template <class Inner>
struct LateLookup : Inner {
  LateWeights late;

  template <ThreadGroup G>
  typename Inner::Found local_rows(const G& g, const Plan& plan, const RowStarts& starts, TokenAt at,
                                   const RoutingEntry* entries, LocalRows& found) const {
    const auto found_by = Inner::local_rows(g, plan, starts, at, entries, found);
    if (g.thread() == 0 && late.are_given(at.source))
      for (int i = 0; i < found.count; ++i) found.weight[i] = late.at(at, found.k[i]);
    g.sync();
    return found_by;
  }
};
static_assert(ArrivalLookup<LateLookup<SerialLookup>, SerialGroup>);
static_assert(ArrivalLookup<LateLookup<HandleLookup>, SerialGroup>);

template <class S>
auto with_late_weights(const S& step, int copy) {
  const LateWeights late(step.plan, step.fabric, copy);
  return with_lookup(step, LateLookup<typename S::Lookup>{step.lookup, late});
}

// Fills this rank's own late weights. I15, I24: the old ones have been sent and read. Every rank has seen `weighed` of
// the combine before, whether it summed or gave that combine up.
template <Fabric F>
void fill_late_weights(const Plan& plan, const F& fabric, int copy, int num_tokens, const Weights& weights) {
  std::byte* own = fabric.local(plan.map.late_weights(copy, plan.rank));
  const bool are_given = weights.are_given();
  *reinterpret_cast<LateHeader*>(own) = {are_given ? 1u : 0u, {}};
  auto* value = reinterpret_cast<float*>(own + sizeof(LateHeader));
  for (int token = 0; are_given && token < num_tokens; ++token)
    for (int k = 0; k < plan.shape.top_k; ++k) *value++ = weights.at(token, k);
}

// Own tokens from the first to the last one that names a rank.
struct NamingTokens {
  int begin = 0;
  int end = 0;
};
template <class S>
NamingTokens tokens_naming(const S& step, int peer, int num_tokens) {
  const Plan& plan = step.plan;
  const ExpertRange experts = plan.experts_of(peer);
  NamingTokens tokens;
  for (int token = 0; token < num_tokens; ++token) {
    const RoutingEntry* entries = entries_of(step, {plan.rank, token});
    for (int k = 0; k < plan.shape.top_k; ++k) {
      if (!experts.contains(plan.code.expert(entries[k].code))) continue;
      if (tokens.end == 0) tokens.begin = token;
      tokens.end = token + 1;
    }
  }
  return tokens;
}

// To every other rank what fill_late_weights left: the header, and the weights of tokens that name it. A signal that
// follows says that they are there (I24).
template <ReceiveStep S>
void put_late_weights(const S& step, int copy, int num_tokens, std::uint64_t* bytes_sent) {
  const Plan& plan = step.plan;
  const std::size_t at = plan.map.late_weights(copy, plan.rank);
  const std::byte* own = step.fabric.local(at);
  const bool are_given = reinterpret_cast<const LateHeader*>(own)->is_given != 0;
  const std::size_t token_bytes = static_cast<std::size_t>(plan.shape.top_k) * sizeof(float);
  for (int peer = 0; peer < plan.shape.ranks; ++peer) {
    if (peer == plan.rank || plan.is_masked(peer)) continue;
    step.fabric.put(step.group, peer, at, own, sizeof(LateHeader));
    bytes_sent[peer] += sizeof(LateHeader);
    if (!are_given) continue;
    const NamingTokens tokens = tokens_naming(step, peer, num_tokens);
    const std::size_t first = sizeof(LateHeader) + static_cast<std::size_t>(tokens.begin) * token_bytes;
    const std::size_t bytes = static_cast<std::size_t>(tokens.end - tokens.begin) * token_bytes;
    step.fabric.put(step.group, peer, at + first, own + first, bytes);
    bytes_sent[peer] += bytes;
  }
}

// I24: tells every peer that the late weights of a combine are there. In a replay `dispatching` says it.
template <ThreadGroup G, SerialFabric F>
void post_weighed(const Plan& plan, F& fabric, const G& g, Epoch result) {
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.weighed(plan.rank), result, plan.masked);
}
template <ThreadGroup G, SerialFabric F>
bool await_weighed(const Plan& plan, F& fabric, const G& g, Epoch result) {
  const auto word = [&](int peer) { return plan.map.weighed(peer); };
  const auto site = [&](int peer) { return WaitSite{Operation::combine, Phase::weights, peer, -1}; };
  return fabric.wait_for_each(g, plan.shape.ranks, word, result, site, plan.masked);
}

// A handle that a replay leaves has the weights that came with it.
inline void keep_late_weights(const Plan& plan, const LateWeights& late, const RowStarts& starts, KeptRouting to) {
  const auto top_k = static_cast<std::size_t>(plan.shape.top_k);
  for (int source = 0; source < plan.shape.ranks; ++source) {
    if (plan.is_masked(source) || !late.are_given(source)) continue;
    for (int token = 0; token < static_cast<int>(starts.tokens[source]); ++token) {
      HandleRow* rows = to.rows + to.index_of(plan, {source, token}) * top_k;
      for (int k = 0; k < plan.shape.top_k; ++k)
        if (rows[k].row != kNoRow) rows[k].weight = late.at({source, token}, k);
    }
  }
  if (late.are_given(plan.rank)) to.header->has_weights = 1;
}

}  // namespace ferry::cpu
