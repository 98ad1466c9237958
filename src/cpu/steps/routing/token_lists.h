// Token lists on the CPU, by one thread: what a source tells each rank for rows that are by_source (token_list.h).
#pragma once

#include <cstdint>

#include "ferry/detail/layout/token_list.h"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cpu {

// Completes a list of which the bits of the words are set.
inline void count_tokens(std::uint64_t* list, int num_tokens, Epoch routing) {
  std::uint32_t before = 0;
  for (std::size_t i = 1; i < token_list_words(num_tokens); ++i) {
    const std::uint32_t bits = low_of(list[i]);
    list[i] = token_list_word(bits, before);
    before += static_cast<std::uint32_t>(count_bits(bits));
  }
  list[0] = token_list_word(before, static_cast<std::uint32_t>(routing));
}

// I3, I23: the list for each rank follows from the table of this source, as its messages do.
template <Fabric F>
void list_tokens(const Plan& plan, F& fabric, int num_tokens, Epoch routing) {
  const auto list_for = [&](int peer) {
    return reinterpret_cast<std::uint64_t*>(fabric.local(plan.map.sent_token_list(routing, peer)));
  };
  for (int peer = 0; peer < plan.shape.ranks; ++peer)
    for (std::size_t i = 0; i < token_list_words(num_tokens); ++i) list_for(peer)[i] = 0;
  const RoutingEntry* entry = table_of(plan, fabric, routing, plan.rank);
  for (int token = 0; token < num_tokens; ++token) {
    for (int k = 0; k < plan.shape.top_k; ++k, ++entry) {
      const int expert = plan.code.expert(entry->code);
      if (expert < 0) continue;
      list_for(plan.owner_of(expert))[1 + token / kTokensOfListWord] |= std::uint64_t{1} << token % kTokensOfListWord;
    }
  }
  for (int peer = 0; peer < plan.shape.ranks; ++peer) count_tokens(list_for(peer), num_tokens, routing);
}

// I23: the first row of each source. `rows`: the lists; relies on I2. `offsets`: [ranks + 1].
inline void find_source_offsets(const Plan& plan, const std::uint64_t* lists, std::size_t words,
                                std::uint32_t* offsets) {
  offsets[0] = 0;
  for (int source = 0; source < plan.shape.ranks; ++source)
    offsets[source + 1] =
        offsets[source] + (plan.is_masked(source) ? 0 : low_of(lists[static_cast<std::size_t>(source) * words]));
}

}  // namespace ferry::cpu
