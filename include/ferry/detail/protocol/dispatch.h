// Dispatch: the phases that carry tokens from their home to the rows of their experts. Who calls them, on which threads
// and in what order is the backend's; every phase may be split over blocks but where it says "one block".
//
//   await_buffers -> route_entries -> publish_routing        (one block)
//                 -> send_tokens                            (all blocks)
//   await_routing -> find_row_starts -> write_row_metadata  (one block)
//                                    -> lay_out_shared_rows, lay_out_rows  (all blocks)
//   post_consumed                                          (the last; for a round whose combine was abandoned)
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/protocol/round.h"

namespace ferry {

inline constexpr Epoch kFirstEpoch = 2;  // I13: words start at 0, so nothing of epoch 2 has arrived before it is sent

// What a phase counted; added up by the backend.
struct SendCounts {
  std::uint64_t non_finite = 0;
  std::uint64_t dropped = 0;
  std::uint64_t* messages = nullptr;  // [ranks]
  std::uint64_t* bytes = nullptr;     // [ranks]
};

// I1: nothing of epoch e is written at a rank before it has consumed e - 2, whose buffers e uses again.
template <ThreadGroup G, Fabric F>
FERRY_HD bool await_buffers(const Plan& plan, F& fabric, const G& g, Epoch epoch) {
  if (epoch < kFirstEpoch + 2) return true;
  const auto word = [&](int peer) { return plan.map.consumed(peer); };
  const auto site = [&](int peer) { return WaitSite{Operation::dispatch, Phase::consumed, peer, -1}; };
  return fabric.wait_for_each(g, plan.shape.ranks, word, epoch - 2, site, plan.masked);
}

// I3: ranks each (token, k) within its expert and writes this source's own table, which it keeps for combine.
// A stable count: no slot is reserved, so the order never varies. Returns how many entries were dropped.
template <Fabric F>
std::uint64_t route_entries(const Plan& plan, F& fabric, const DispatchArgs& in, Epoch epoch) {
  auto* counts = reinterpret_cast<std::uint32_t*>(fabric.local(plan.map.sent_counts(epoch)));
  auto* table = reinterpret_cast<RoutingEntry*>(fabric.local(plan.map.table(epoch, plan.rank)));
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
  return dropped;
}

// I2: header, table and counts of this source are at a peer before its `routed` word says so.
template <ThreadGroup G, SerialFabric F>
FERRY_HD void publish_routing(const Plan& plan, F& fabric, const G& g, int num_tokens, Epoch epoch,
                              std::uint64_t* bytes_sent) {
  const std::size_t table = plan.map.table(epoch, plan.rank);
  const std::size_t header = plan.map.header(epoch, plan.rank);
  const std::size_t table_bytes = static_cast<std::size_t>(num_tokens) * plan.shape.top_k * sizeof(RoutingEntry);
  if (g.thread() == 0) {
    *reinterpret_cast<RoutingHeader*>(fabric.local(header)) = RoutingHeader{static_cast<std::uint32_t>(num_tokens), {}};
  }
  g.sync();
  for (int step = 1; step <= plan.shape.ranks; ++step) {
    const int peer = (plan.rank + step) % plan.shape.ranks;  // itself last, and not all ranks the same one first
    if (plan.is_masked(peer)) continue;
    const ExpertRange experts = plan.experts_of(peer);
    const std::size_t count_bytes = static_cast<std::size_t>(experts.count) * sizeof(std::uint32_t);
    const std::size_t counts =
        plan.map.sent_counts(epoch) + static_cast<std::size_t>(experts.first) * sizeof(std::uint32_t);
    fabric.put(g, peer, plan.map.counts(epoch, plan.rank), fabric.local(counts), count_bytes);
    if (peer != plan.rank) {
      fabric.put(g, peer, table, fabric.local(table), table_bytes);
      fabric.put(g, peer, header, fabric.local(header), sizeof(RoutingHeader));
      if (g.thread() == 0) bytes_sent[peer] += table_bytes + sizeof(RoutingHeader) + count_bytes;
    }
  }
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.routed(plan.rank), epoch, plan.masked);
}

// The ranks that a token goes to, from the caller's ids: the sending blocks do not wait for the ranking one. With a
// fused shared expert the own rank gets every token of its share.
template <ThreadGroup G>
FERRY_HD void find_destinations(const G& g, const Plan& plan, const DispatchArgs& in, int token, NamedRanks& to) {
  if (g.thread() == 0) {
    int count = 0;
    const bool shared = plan.shared_groups != 0 && token >= in.shared_begin && token < in.shared_end;
    if (shared) to.rank[count++] = plan.rank;
    for (int k = 0; k < plan.shape.top_k; ++k) {
      const int expert = routed_expert(plan, in.ids.at(static_cast<std::int64_t>(token) * plan.shape.top_k + k));
      if (expert < 0) continue;
      const int owner = plan.owner_of(expert);
      bool seen = false;
      for (int i = 0; i < count; ++i) seen = seen || to.rank[i] == owner;
      if (!seen) to.rank[count++] = owner;
    }
    to.count = count;
  }
  g.sync();
}

// I5: a message is whole in its slot before `arrived` says so. One message per (token, rank), encoded once into
// `staging` (or, where some rank is reached by puts only, into the send buffer, which I1 keeps until it was read: I15).
// `share`: a Block, or what a backend takes places from in its stead.
template <ThreadGroup G, Fabric F, TokenFormat Fmt, class Share>
FERRY_HD void send_tokens(const Plan& plan, F& fabric, const G& g, const Fmt& format, const DispatchArgs& in,
                          Epoch epoch, Share share, std::byte* staging, TokenScratch& scratch, SendCounts& counted) {
  const std::size_t payload_bytes = format.payload_bytes(plan.shape.hidden);
  const bool has_remote_ranks = plan.map.has_remote_ranks();
  NamedRanks& to = scratch.named;
  for (int token = share.index; token < in.num_tokens; token = next_place(g, share, token)) {
    find_destinations(g, plan, in, token, to);
    if (to.count == 0) {
      g.sync();
      continue;
    }
    std::byte* message =
        fabric.staging(g, has_remote_ranks ? fabric.local(plan.map.sent_message(epoch, token)) : staging);
    const InputRow row{in.tokens + token * in.row_stride, in.dtype};
    const int found =
        format.encode(g, row, plan.shape.hidden, fabric.hooks().input_scale(in), message, message + payload_bytes);
    counted.non_finite += static_cast<std::uint64_t>(format.block() == 0 ? once_in(g, found) : found);
    g.sync();
    fabric.put_then_signal_each(g, {to.rank, to.count, plan.rank + token},
                                {plan.map.message(epoch, plan.rank, token), message, plan.map.message_bytes(),
                                 plan.map.arrived(epoch, plan.rank, token), epoch});
    for (int i = g.thread(); i < to.count; i += g.size()) {
      counted.messages[to.rank[i]] += 1;
      counted.bytes[to.rank[i]] += plan.map.message_bytes();
    }
    g.sync();
  }
  fabric.finish_puts(g);
}

// Relies on I2: after true, header, table and counts of every source may be read.
template <ThreadGroup G, Fabric F>
FERRY_HD bool await_routing(const Plan& plan, F& fabric, const G& g, Epoch epoch) {
  const auto word = [&](int source) { return plan.map.routed(source); };
  const auto site = [&](int source) { return WaitSite{Operation::dispatch, Phase::routing, source, -1}; };
  return fabric.wait_for_each(g, plan.shape.ranks, word, epoch, site, plan.masked);
}

// I4: every row start follows from the R * L counts: group by group, and in a group source by source.
template <Fabric F>
void find_row_starts(const Plan& plan, const F& fabric, Epoch epoch, int shared_rows, const RowStarts& starts) {
  const int experts = plan.local_experts();
  std::uint32_t row = 0;
  std::uint32_t tiles = 0;
  for (int group = 0; group < plan.groups(); ++group) {
    const std::uint32_t first = row;
    const int local = group - plan.shared_groups;
    if (local < 0) row += static_cast<std::uint32_t>(shared_rows);
    for (int source = 0; local >= 0 && source < plan.shape.ranks; ++source) {
      starts.of_source[source * experts + local] = row;
      if (plan.is_masked(source)) continue;
      row += reinterpret_cast<const std::uint32_t*>(fabric.local(plan.map.counts(epoch, source)))[local];
    }
    starts.group[group] = first;
    starts.filled[group] = row - first;
    starts.tiles[group] = tiles - first / 128;
    tiles += (row - first + 127) / 128;
    row = align_row(row, plan.alignment);
  }
  starts.group[plan.groups()] = row;
  std::uint32_t most = 0;
  for (int source = 0; source < plan.shape.ranks; ++source) {
    starts.tokens[source] = static_cast<std::uint32_t>(tokens_of(plan, fabric, epoch, source));
    most = starts.tokens[source] > most ? starts.tokens[source] : most;
  }
  starts.tokens[plan.shape.ranks] = most;
}

// row_offsets, expert_ids, scales_offsets, and what marks the padding rows of every group: src_info (-1, -1), scale 0.
// Blocks share the groups.
template <ThreadGroup G>
FERRY_HD void write_row_metadata(const Plan& plan, const G& g, Block block, const RowStarts& starts,
                                 const RowsOut& out) {
  const int groups = plan.groups();
  for (int group = g.thread(); block.index == 0 && group <= groups; group += g.size()) {
    out.row_offsets[group] = starts.group[group];
    if (group == groups) break;
    out.expert_ids[group] = group;
    if (out.scales_offsets != nullptr) out.scales_offsets[group] = starts.tiles[group];
  }
  for (int group = block.index; group < groups; group += block.count) {
    const std::uint32_t first = starts.group[group];
    const std::uint32_t filled_end = first + starts.filled[group];
    for (std::uint32_t row = filled_end + static_cast<std::uint32_t>(g.thread()); row < starts.group[group + 1];
         row += static_cast<std::uint32_t>(g.size())) {
      out.src_info[2 * static_cast<std::size_t>(row)] = -1;
      out.src_info[2 * static_cast<std::size_t>(row) + 1] = -1;
    }
    if (out.scales.layout == ScaleLayout::tiled) {
      zero_scale_tail(g, out.scales, first, filled_end, starts.tiles[group]);
      continue;
    }
    for (std::uint32_t row = filled_end; row < starts.group[group + 1]; ++row)
      zero_scales(g, out.scales, ScaleRow{row, first, starts.tiles[group]});
  }
}

template <ThreadGroup G>
FERRY_HD void store_scales_of_rows(const G& g, const ScalePlace& place, const std::byte* scales,
                                   const RowStarts& starts, int shared_groups, const LocalRows& to) {
  for (int i = 0; i < to.count; ++i) {
    const int group = to.local[i] + shared_groups;
    store_scales(g, place, scales, ScaleRow{to.row[i], starts.group[group], starts.tiles[group]});
  }
}

// A message to all its rows: read once.
template <ThreadGroup G, TokenFormat Fmt>
FERRY_HD void write_rows(const Plan& plan, const G& g, const Fmt& format, const std::byte* message, const RowsOut& out,
                         const RowStarts& starts, const LocalRows& to, int token) {
  const std::size_t payload_bytes = format.payload_bytes(plan.shape.hidden);
  copy_to_rows(g, out.payload, out.row_bytes, to.row, to.count, message, payload_bytes);
  store_scales_of_rows(g, out.scales, message + payload_bytes, starts, plan.shared_groups, to);
  for (int i = g.thread(); i < to.count; i += g.size()) {
    out.src_info[2 * static_cast<std::size_t>(to.row[i])] = token;
    out.src_info[2 * static_cast<std::size_t>(to.row[i]) + 1] = to.k[i];
  }
}

// The rows of the fused shared expert: own messages, in token order. Relies on I5 for this rank's own slots.
template <ThreadGroup G, Fabric F, TokenFormat Fmt>
FERRY_HD bool lay_out_shared_rows(const Plan& plan, F& fabric, const G& g, const Fmt& format, int shared_begin,
                                  int shared_end, Epoch epoch, Block block, const RowStarts& starts, const RowsOut& out,
                                  TokenScratch& scratch) {
  LocalRows& to = scratch.found;
  for (int token = shared_begin + block.index; token < shared_end; token += block.count) {
    if (!fabric.wait_at_least(g, plan.map.arrived(epoch, plan.rank, token), epoch,
                              {Operation::dispatch, Phase::message, plan.rank, token}))
      return false;
    if (sync_unit(g).thread() == 0) {
      to.count = 1;
      to.k[0] = plan.shape.top_k;
      to.local[0] = -plan.shared_groups;  // group 0
      to.row[0] = starts.group[0] + static_cast<std::uint32_t>(token - shared_begin);
    }
    g.sync();
    write_rows(plan, g, format, fabric.local(plan.map.message(epoch, plan.rank, token)), out, starts, to, token);
    g.sync();
  }
  return true;
}

// Relies on I5: waits only for the token in hand, reads each message once, and writes it to each of its rows. `starts`:
// RowStarts, or what a backend derives from them to remember more.
template <ThreadGroup G, Fabric F, TokenFormat Fmt, class Starts>
FERRY_HD bool lay_out_rows(const Plan& plan, F& fabric, const G& g, const Fmt& format, Epoch epoch, Block block,
                           const Starts& starts, const RowsOut& out, TokenScratch& scratch) {
  LocalRows& found = scratch.found;
  const TokenSequence tokens(plan, starts, plan.rank);
  for (int place = block.index; place < tokens.length; place += block.count) {
    const TokenAt at = tokens.at(place);
    const int num_tokens = static_cast<int>(starts.tokens[at.source]);
    if (at.token >= num_tokens) continue;
    if (!fabric.await_entries(g, plan, epoch, at, num_tokens)) return false;
    find_local_rows(g, plan, starts, at, entries_of(plan, fabric, epoch, at), found);
    if (found.count != 0) {
      if (!fabric.wait_at_least(g, plan.map.arrived(epoch, at.source, at.token), epoch,
                                {Operation::dispatch, Phase::message, at.source, at.token}))
        return false;
      write_rows(plan, g, format, fabric.local(plan.map.message(epoch, at.source, at.token)), out, starts, found,
                 at.token);
    }
    g.sync();
  }
  return true;
}

// I6: tells every peer that this rank has read all of `epoch`, so that epoch + 2 may be written.
template <ThreadGroup G, SerialFabric F>
FERRY_HD void post_consumed(const Plan& plan, F& fabric, const G& g, Epoch epoch) {
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.consumed(plan.rank), epoch, plan.masked);
}

}  // namespace ferry
