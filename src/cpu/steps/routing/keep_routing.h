// What a dispatch on the CPU writes into a handle, after its rows are laid out. GPUs write the same as messages come.
#pragma once

#include <cstring>

#include "cpu/steps/lookup/row_room.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "exchange/calls/call_order.h"
#include "ferry/detail/protocol/contracts/handle.h"
#include "ferry/detail/protocol/contracts/work_share.h"

namespace ferry::cpu {

// A handle of padded rows is left only where all have room.
inline std::uint32_t room_in_handle(const RowRoom& room) {
  return room.rows + 1;  // RowRoom::kAll becomes 0
}

// `header` says whose handle it is; the rest follows from the dispatch.
inline HandleHeader completed(HandleHeader header, const Ticket& ticket, std::uint32_t num_rows, const RowRoom& room) {
  header.routing |= ticket.routing;  // it has the exchange's number
  header.order = static_cast<std::int32_t>(ticket.rows.order);
  header.num_tokens = ticket.num_tokens;
  header.has_weights = ticket.has_weights ? 1 : 0;
  header.by_counts = ticket.by_counts ? 1 : 0;
  header.num_rows = num_rows;
  header.row_room = room_in_handle(room);
  header.shared_begin = ticket.shared.begin;
  header.shared_end = ticket.shared.end;
  return header;
}

// The parts that do not grow with the messages: header, mask, row starts, and the own table.
template <Fabric F>
void keep_own_part(const Plan& plan, const F& fabric, const Ticket& ticket, const HandleHeader& header,
                   const RowStarts& starts, const RowRoom& room, KeptRouting to) {
  *to.header = completed(header, ticket, starts.group[plan.groups()], room);
  for (int peer = 0; peer < plan.shape.ranks; ++peer) to.masked[peer] = plan.is_masked(peer) ? 1 : 0;
  std::memcpy(to.starts.of_source, starts.of_source,
              static_cast<std::size_t>(row_start_words(plan)) * sizeof(std::uint32_t));
  const std::size_t entries = static_cast<std::size_t>(ticket.num_tokens) * static_cast<std::size_t>(plan.shape.top_k);
  const RoutingEntry* own = table_of(plan, fabric, ticket.routing, plan.rank);
  for (std::size_t i = 0; i < entries; ++i) {
    const int expert = plan.code.expert(own[i].code);
    to.ids[i] = expert < 0 ? -1 : expert + plan.first_id;
  }
  if (entries != 0) std::memcpy(to.own, own, entries * sizeof(RoutingEntry));
}

// I22: rows and slots of the tokens of one source.
template <Fabric F>
void keep_arrivals_of(const Plan& plan, const F& fabric, Epoch routing, int source, const RowStarts& starts,
                      KeptRouting to) {
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

template <Fabric F>
void keep_arrivals(const Plan& plan, const F& fabric, Epoch routing, FixedShare share, const RowStarts& starts,
                   KeptRouting to) {
  for (int source = share.index; source < plan.shape.ranks; source += share.count)
    keep_arrivals_of(plan, fabric, routing, source, starts, to);
}

}  // namespace ferry::cpu
