// Token lists by a block for each rank, as cpu::list_tokens: what this rank, a source, tells each of them for rows
// by_source (token_list.h); and what a receiving block finds in the lists of all sources.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/routing/route_share.cuh"
#include "ferry/detail/cuda/steps/row_starts.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/layout/token_list.h"
#include "ferry/detail/protocol/rows_by_source.h"

namespace ferry::cuda {

// Shared memory of a block that makes a list. A thread has a word of the list.
struct TokenListMemory {
  BlockWord<std::uint32_t> bits[kThreads];
  WarpTotals totals;
};

// The makers of the list for `peer`: all threads of a block. A list for a remote rank is made in its send buffer.
template <RankReach Reach>
class TokenLister {
 public:
  __device__ TokenLister(const SyncedTeam& all, const Plan& plan, const PeerLinks& links, Epoch routing, int peer,
                         TokenListMemory& memory)
      : all_(all),
        plan_(plan),
        links_(links),
        peer_(peer),
        is_direct_(Reach(links).is_direct(peer)),
        table_(reinterpret_cast<const RoutingEntry*>(links.own + plan.map.table(routing, plan.rank))),
        list_(reinterpret_cast<std::uint64_t*>(is_direct_ ? Reach(links).heap_of(peer) +
                                                                plan.map.token_list(routing, plan.rank)
                                                          : links.own + plan.map.sent_token_list(routing, peer))),
        theirs_(plan.experts_of(peer)),
        memory_(memory) {}

  // I3, I23: the list follows from the table of this source, as its messages do. The first word comes last: whoever
  // sees it sees the others.
  __device__ void list(int num_tokens, Epoch routing) {
    std::uint32_t before = 0;
    for (int first = 0; first < num_tokens; first += kTokensOfListWord * kThreads)
      before += list_chunk({first, min(num_tokens, first + kTokensOfListWord * kThreads)}, before);
    const std::uint64_t first_word = token_list_word(before, static_cast<std::uint32_t>(routing));
    if constexpr (Reach::kHasRemoteRanks)
      if (!is_direct_) return put(num_tokens, routing, first_word);
    if (all_.thread() == 0) store_release(*reinterpret_cast<SignalWord*>(list_), first_word);
  }

 private:
  // A warp: the first word is the signal that follows the others.
  __device__ void put(int num_tokens, Epoch routing, std::uint64_t first_word) const {
    const typename Reach::Puts transport(links_);
    const std::size_t to = plan_.map.token_list(routing, plan_.rank);
    const std::size_t bytes = (token_list_words(num_tokens) - 1) * sizeof *list_;
    if (bytes == 0) {
      if (all_.thread() == 0) transport.signal(peer_, to, first_word);
    } else if (all_.thread() < SyncedTeam::kWidth) {
      transport.put_signal(peer_, to + sizeof *list_, reinterpret_cast<const std::byte*>(list_ + 1), bytes, to,
                           first_word);
    }
  }
  // Sets the bits of the tokens that name an expert of the peer.
  __device__ void mark(const IndexRange& chunk) {
    const int top_k = plan_.shape.top_k;
#pragma unroll 4
    for (int i = chunk.first * top_k + all_.thread(); i < chunk.end * top_k; i += all_.size()) {
      if (!theirs_.contains(plan_.code.expert(table_[i].code))) continue;
      const int bit_at = plan_.by_top_k.quotient(i) - chunk.first;
      fetch_or_relaxed(memory_.bits[bit_at / kTokensOfListWord], 1u << bit_at % kTokensOfListWord);
    }
  }
  // Writes the words of a chunk and returns how many of its tokens come. `before`: how many come in earlier chunks.
  // Ends with a barrier, which puts the words of all threads before the first word.
  __device__ std::uint32_t list_chunk(const IndexRange& chunk, std::uint32_t before) {
    const int warp = all_.thread() / 32;
    memory_.bits[all_.thread()].raw = 0;
    all_.sync();
    mark(chunk);
    all_.sync();
    const std::uint32_t bits = memory_.bits[all_.thread()].raw;
    const auto count = static_cast<std::uint32_t>(__popc(bits));
    const std::uint32_t of_warp = sum_before(count);
    if (all_.thread() % 32 == 31) memory_.totals.rows[warp] = of_warp + count;
    all_.sync();
    const int word = chunk.first / kTokensOfListWord + all_.thread();
    const std::uint32_t earlier = before + sum_of_warps(memory_.totals.rows, warp) + of_warp;
    if (word * kTokensOfListWord < chunk.end) list_[1 + word] = token_list_word(bits, earlier);
    const std::uint32_t all = sum_of_warps(memory_.totals.rows, WarpTotals::kWarps);
    all_.sync();
    return all;
  }

  const SyncedTeam& all_;
  const Plan& plan_;
  const PeerLinks& links_;
  int peer_;
  bool is_direct_;
  const RoutingEntry* table_;
  std::uint64_t* list_;
  ExpertRange theirs_;
  TokenListMemory& memory_;
};

// Of a dispatch of this rank, whose table is complete.
struct ListedTokens {
  const Plan& plan;
  const PeerLinks& links;
  int num_tokens;
  DeviceWord<std::uint64_t>* bytes;  // StatsWords::bytes
};
// One thread, for another rank.
__device__ inline void count_list_bytes(const ListedTokens& listed, int peer) {
  fetch_add_relaxed(listed.bytes[peer], std::uint64_t{token_list_words(listed.num_tokens) * sizeof(std::uint64_t)});
}
// All threads of a block: the lists for the ranks of its share.
template <RankReach Reach>
__device__ void list_tokens(const SyncedTeam& all, const ListedTokens& listed, Epoch routing, FixedShare share,
                            TokenListMemory& memory) {
  for (int peer = share.index; peer < listed.plan.shape.ranks; peer += share.count) {
    if (listed.plan.is_masked(peer)) continue;
    TokenLister<Reach>(all, listed.plan, listed.links, routing, peer, memory).list(listed.num_tokens, routing);
    if (peer != listed.plan.rank && all.thread() == 0) count_list_bytes(listed, peer);
  }
}

// I23: waits for the lists of all sources. `offsets`: [ranks + 1] of the block's shared memory. Sets the last entry of
// starts.group to the number of rows. False: a rank did not come. Ends with a barrier.
template <DeviceFabric F>
__device__ bool find_source_rows(const SyncedTeam& all, const Plan& plan, const F& fabric, Epoch routing,
                                 RowStartsToFill starts, std::uint32_t* offsets) {
  const int ranks = plan.shape.ranks;
  bool ok = true;
  for (int source = all.thread(); source < ranks && ok; source += all.size()) {
    const TaggedValue come =
        plan.is_silent(source) ? TaggedValue{true, 0} : fabric.waits().wait_for_list(plan, routing, source);
    offsets[source + 1] = come.value;
    ok = come.is_there;
  }
  if (!all.all(ok)) return false;
  if (all.thread() == 0) {
    offsets[0] = 0;
    for (int source = 0; source < ranks; ++source) offsets[source + 1] += offsets[source];
    starts.group[plan.groups()] = offsets[ranks];
  }
  all.sync();
  return true;
}

template <DeviceFabric F>
__device__ SourceRows source_rows_at(const Plan& plan, const F& fabric, Epoch routing, const std::uint32_t* offsets) {
  return {offsets, reinterpret_cast<const std::uint64_t*>(fabric.local(plan.map.token_list(routing, 0))),
          token_list_words(plan.shape.max_tokens)};
}

// WarpLookup for rows by_source, which say the weights of their token.
struct SourceLookup : WarpLookup {
  __device__ Found local_rows(const WarpwiseTeam& g, const Plan& plan, const RowStarts& starts, TokenAt at,
                              const RoutingEntry* entries, LocalRows& found) const {
    const Found here = WarpLookup::local_rows(g, plan, starts, at, entries, found);
    const bool is_local = here.row.row != kNoRow;
    const unsigned local = __ballot_sync(kAllLanes, is_local);
    if (is_local) found.weight[__popc(local & lanes_below(g.lane()))] = here.row.weight;
    g.sync();
    return here;
  }
};
static_assert(TokenLookup<SourceLookup, SyncedTeam, WarpwiseTeam>);

// As RowLog, for rows by_source: combine finds one row of each token, which no weight changes.
struct SourceRowLog {
  const ArrivedRows& arrived;
  const SourceRows& rows;

  __device__ void keep(const WarpwiseTeam& g, const Plan& plan, TokenAt at, const WarpLookup::Found& found) const {
    if (!g.is_first_warp()) return;
    const unsigned local = __ballot_sync(kAllLanes, found.row.row != kNoRow);
    WarpLookup::Found one{{kNoRow, 1.0f}, found.slot};
    if (local != 0 && g.lane() == __ffs(static_cast<int>(local)) - 1) one.row.row = rows.row_of(at);
    RowLog{arrived}.keep(g, plan, at, one);
  }
};
static_assert(ArrivalLog<SourceRowLog, SourceLookup, WarpwiseTeam>);

}  // namespace ferry::cuda
