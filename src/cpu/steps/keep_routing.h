// What a dispatch on the CPU writes into a handle, after its rows are laid out. GPUs write the same as messages come.
#pragma once

#include <cstring>

#include "cpu/steps/serial_lookup.h"
#include "ferry/detail/protocol/handle.h"

namespace ferry::cpu {

// The parts that do not grow with the messages: header, mask, row starts, and the own table.
template <Fabric F>
void keep_own_part(const Plan& plan, const F& fabric, Epoch routing, const HandleHeader& header,
                   const RowStarts& starts, const KeptRouting& to) {
  *to.header = header;
  for (int peer = 0; peer < plan.shape.ranks; ++peer) to.masked[peer] = plan.is_masked(peer) ? 1 : 0;
  std::memcpy(to.starts.of_source, starts.of_source,
              static_cast<std::size_t>(row_start_words(plan)) * sizeof(std::uint32_t));
  const std::size_t entries = static_cast<std::size_t>(header.num_tokens) * static_cast<std::size_t>(plan.shape.top_k);
  for (std::size_t i = 0; i < entries; ++i) {
    const int expert = plan.code.expert(table_of(plan, fabric, routing, plan.rank)[i].code);
    to.ids[i] = expert < 0 ? -1 : expert + plan.id_base;
  }
  if (entries != 0) std::memcpy(to.own, table_of(plan, fabric, routing, plan.rank), entries * sizeof(RoutingEntry));
}

// I22: rows and slots of the tokens of one source.
template <Fabric F>
void keep_arrivals(const Plan& plan, const F& fabric, Epoch routing, int source, const RowStarts& starts,
                   const KeptRouting& to) {
  const SerialGroup alone;
  LocalRows found;
  NamedRanks named;
  ResultsBefore before{0, 0};
  for (int token = 0; token < static_cast<int>(starts.tokens[source]); ++token) {
    const TokenAt at{source, token};
    const RoutingEntry* entries = entries_of(plan, fabric, routing, at);
    const std::size_t index = to.index_of(plan, at);
    HandleRow* rows = to.rows + index * static_cast<std::size_t>(plan.shape.top_k);
    SerialLookup{}.local_rows(alone, plan, starts, at, entries, found);
    for (int k = 0; k < plan.shape.top_k; ++k) {
      const int expert = plan.code.expert(entries[k].code);
      rows[k] = {kNoRow, 0.0f};
      before.exact += expert >= 0 && plan.owner_of(expert) < plan.rank ? 1 : 0;
    }
    for (int i = 0; i < found.count; ++i) rows[found.k[i]] = {found.row[i], found.weight[i]};
    list_named_ranks(plan, entries, named);
    int slot = 0;
    while (slot < named.count && named.rank[slot] < plan.rank) ++slot;
    to.slots[index] = static_cast<std::uint8_t>(slot);
    before.by_rank += static_cast<std::uint32_t>(slot);
  }
  to.results_before[source] = before;
}

}  // namespace ferry::cpu
