// What the phases of a round share: the plan (fixed when the exchange is made), the caller's tensors as raw pointers,
// and the small questions about a routing table that both directions ask. All plain data, so that it travels to a
// kernel by value. The phases are in dispatch.h and combine.h; docs/protocol.md numbers the invariants that they cite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/divider.h"
#include "ferry/detail/formats/row_sum.h"
#include "ferry/detail/layout/expert_split.h"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/layout/scale_layout.h"
#include "ferry/detail/protocol/fabric.h"
#include "ferry/shape.h"
#include "ferry/token_format.h"

namespace ferry {

// The slots of results where they are packed (I9): those of a source begin with rank 0's, and each rank's are in the
// order of the source's tokens, of one token in that of k.
struct PackedSlots {
  const std::uint32_t* begin;      // [ranks]: the first slot here of each rank's results
  const std::uint32_t* of_result;  // [max_tokens, results per token]: own results: earlier ones of the same rank
  const std::uint32_t* begin_at;   // [ranks]: the first slot of this rank's results at each source
  const std::uint32_t* before;     // [ranks, max_tokens]: this rank's results to a source for tokens before this one
};

struct Plan {
  Shape shape;  // as the protocol sees it: one rank, and its experts only, in skip_a2a mode
  ExpertSplit split;
  Divider by_ranks;
  Divider by_top_k;
  HeapMap map;
  EntryCode code;
  int rank = 0;     // in `shape`
  int id_base = 0;  // skip_a2a: first expert of this rank, else 0
  bool exact = false;
  const PackedSlots* packed = nullptr;  // where results are packed (I9), else null; renewed per round
  int shared_groups = 0;                // 1 with a fused shared expert
  int alignment = 1;
  const std::uint8_t* masked = nullptr;  // [ranks]: 1 for ranks that take no part; latched per round. Null: all do

  // With what follows from it alone.
  void set_shape(const Shape& of) {
    shape = of;
    split = ExpertSplit(of);
    by_ranks = Divider(of.ranks);
    by_top_k = Divider(of.top_k);
  }
  FERRY_HD bool is_masked(int peer) const { return masked != nullptr && masked[peer] != 0; }
  FERRY_HD int owner_of(int expert) const { return split.owner_of(expert); }
  FERRY_HD ExpertRange experts_of(int of) const { return split.experts_of(of); }
  FERRY_HD int local_experts() const { return experts_of(rank).count; }
  FERRY_HD int groups() const { return local_experts() + shared_groups; }
};

struct RowsOut {
  std::byte* payload = nullptr;
  std::size_t row_bytes = 0;
  ScalePlace scales{};
  std::uint32_t* row_offsets = nullptr;
  std::int32_t* expert_ids = nullptr;
  std::int32_t* src_info = nullptr;
  std::uint32_t* scales_offsets = nullptr;
};

// Where the rows of every (source, local expert) begin: from counts alone, whatever has arrived.
struct RowStarts {
  std::uint32_t* of_source = nullptr;  // [ranks, local experts]: first row
  std::uint32_t* group = nullptr;      // [groups + 1]: row_offsets
  std::uint32_t* filled = nullptr;     // [groups]: rows of the group that are not padding
  std::uint32_t* tiles = nullptr;      // [groups]: scales_offsets, whatever the layout
  std::uint32_t* tokens = nullptr;     // [ranks + 1]: tokens of every source; the last is the largest of them
};

// Row starts one after the other in memory.
FERRY_HD inline int row_start_words(const Plan& plan) {
  return plan.shape.ranks * (plan.local_experts() + 1) + 3 * plan.groups() + 2;
}
FERRY_HD inline RowStarts row_starts_at(const Plan& plan, std::uint32_t* words) {
  RowStarts starts;
  starts.of_source = words;
  starts.group = starts.of_source + plan.shape.ranks * plan.local_experts();
  starts.filled = starts.group + plan.groups() + 1;
  starts.tiles = starts.filled + plan.groups();
  starts.tokens = starts.tiles + plan.groups();
  return starts;
}

// A piece of a phase: block `index` of `count` takes every count-th token.
struct Block {
  int index;
  int count;
};

template <ThreadGroup G>
FERRY_HD int next_place(const G&, const Block& block, int place) {
  return place + block.count;
}

// The tokens of all sources in one sequence: token by token, and of each token source by source. All sources send at
// once, so what comes first is taken first, and few tokens of many sources are spread over as many blocks.
struct TokenAt {
  int source;
  int token;
};
struct TokenSequence {
  const Divider& by_ranks;
  int first_source;
  int length;  // places in the sequence; those past the tokens of a source are empty

  // `first`: a rank, or the number of ranks for the first one.
  FERRY_HD TokenSequence(const Plan& plan, const RowStarts& starts, int first)
      : TokenSequence(plan, static_cast<int>(starts.tokens[plan.shape.ranks]), first) {}
  FERRY_HD TokenSequence(const Plan& plan, int most_tokens, int first)
      : by_ranks(plan.by_ranks), first_source(first), length(plan.shape.ranks * most_tokens) {}
  FERRY_HD TokenAt at(int place) const {
    const int token = by_ranks.quotient(place);
    const int source = first_source + place - token * by_ranks.divisor();
    return {source < by_ranks.divisor() ? source : source - by_ranks.divisor(), token};
  }
};

// routed_expert where no rank is masked.
FERRY_HD inline int unmasked_expert(const Plan& plan, std::int64_t id) {
  const std::int64_t expert = id - plan.id_base;
  return id < 0 || expert < 0 || expert >= plan.shape.experts ? -1 : static_cast<int>(expert);
}

// The expert, as the protocol counts it, that entry (token, k) of the caller's ids goes to; -1: none, not local
// (skip_a2a) or masked (I11: in the source's table alone). I3: every use of the caller's ids comes through here, so
// table and messages agree.
FERRY_HD inline int routed_expert(const Plan& plan, std::int64_t id, bool* dropped = nullptr) {
  const int expert = unmasked_expert(plan, id);
  if (expert < 0 || !plan.is_masked(plan.owner_of(expert))) return expert;
  if (dropped != nullptr) *dropped = true;
  return -1;
}

// The local rows of one token, k ascending.
struct LocalRows {
  int count = 0;
  int k[kMaxTopK];
  int local[kMaxTopK];          // local expert
  std::uint32_t row[kMaxTopK];  // row of the output
  float weight[kMaxTopK];
};

// The distinct ranks that a token names, ascending where they come from a table.
struct NamedRanks {
  int count = 0;
  int rank[kMaxTopK + 1];  // the own rank besides, for a fused shared expert
};

// What one token's sum is made of: the slots that its own table says will come, in order.
struct TokenResults {
  int count = 0;
  int index[kMaxTopK];  // slot, counted from the token's first one; where results are packed, it may be any
  int rank[kMaxTopK];   // who writes it
  int k[kMaxTopK];      // exact only
};

// Room for one token's questions, shared by those threads of a group that a sync holds together. A backend's group type
// may answer them with all its threads: the calls are unqualified, so an overload beside that type wins
// (ferry/detail/cuda/steps/token_scratch.cuh). Every find_* ends with a sync.
struct TokenScratch {
  NamedRanks named;
  LocalRows found;
  TokenResults results;
  SumRow rows[kMaxTopK + 1];
};

// The threads that share a scratch: the whole group, but where its type says otherwise by an overload.
template <ThreadGroup G>
FERRY_HD const G& sync_unit(const G& g) {
  return g;
}

// I4: row = first row of (source, expert) + rank within expert; from table and counts alone.
template <ThreadGroup G>
FERRY_HD void find_local_rows(const G& g, const Plan& plan, const RowStarts& starts, TokenAt at,
                              const RoutingEntry* entries, LocalRows& found) {
  if (g.thread() == 0) {
    const ExpertRange mine = plan.experts_of(plan.rank);
    int count = 0;
    for (int k = 0; k < plan.shape.top_k; ++k) {
      const int expert = plan.code.expert(entries[k].code);
      if (!mine.contains(expert)) continue;
      const int local = expert - mine.first;
      found.k[count] = k;
      found.local[count] = local;
      found.row[count] =
          starts.of_source[at.source * mine.count + local] + plan.code.position_in_expert(entries[k].code);
      found.weight[count] = entries[k].weight;
      ++count;
    }
    found.count = count;
  }
  g.sync();
}

// From the table, so source and expert rank see the same (I9). By one thread.
FERRY_HD inline void list_named_ranks(const Plan& plan, const RoutingEntry* entries, NamedRanks& named) {
  named.count = 0;
  for (int k = 0; k < plan.shape.top_k; ++k) {
    const int expert = plan.code.expert(entries[k].code);
    if (expert < 0) continue;
    const int owner = plan.owner_of(expert);
    int at = named.count;
    while (at > 0 && named.rank[at - 1] > owner) --at;
    if (at > 0 && named.rank[at - 1] == owner) continue;
    for (int move = named.count; move > at; --move) named.rank[move] = named.rank[move - 1];
    named.rank[at] = owner;
    ++named.count;
  }
}

// I9: the slot of this rank's partial, from the source's table: how many smaller ranks the token names.
FERRY_HD inline int partial_index(const Plan& plan, const RoutingEntry* entries) {
  NamedRanks named;
  list_named_ranks(plan, entries, named);
  int index = 0;
  while (index < named.count && named.rank[index] < plan.rank) ++index;
  return index;
}

template <Fabric F>
FERRY_HD const RoutingEntry* table_of(const Plan& plan, const F& fabric, Epoch epoch, int source) {
  return reinterpret_cast<const RoutingEntry*>(fabric.local(plan.map.table(epoch, source)));
}
// The entries of one token.
template <Fabric F>
FERRY_HD const RoutingEntry* entries_of(const Plan& plan, const F& fabric, Epoch epoch, TokenAt at) {
  return table_of(plan, fabric, epoch, at.source) + static_cast<std::size_t>(at.token) * plan.shape.top_k;
}
template <Fabric F>
FERRY_HD int tokens_of(const Plan& plan, const F& fabric, Epoch epoch, int source) {
  if (plan.is_masked(source)) return 0;
  const auto* header = reinterpret_cast<const RoutingHeader*>(fabric.local(plan.map.header(epoch, source)));
  return static_cast<int>(header->num_tokens);
}

}  // namespace ferry
