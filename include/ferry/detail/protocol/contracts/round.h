// What the steps of a round share: the plan, which is fixed when the exchange is made, and the caller's tensors as raw
// pointers. All of it is plain data, so that it travels to a kernel by value. docs/protocol.md lists the steps and
// numbers the invariants that they cite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/divider.h"
#include "ferry/detail/formats/global_scales.h"
#include "ferry/detail/layout/expert_split.h"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/layout/scale_layout.h"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/row_order.h"
#include "ferry/shape.h"
#include "ferry/token_format.h"

namespace ferry {

inline constexpr Epoch kFirstEpoch = 2;  // I13: of every counter. Words start at 0, so nothing of 2 is there yet

// The slots of packed results (I9). At a source the results of rank 0 come first, then those of rank 1, and so on. The
// results of a rank follow the order of the source's tokens, and within a token the order of k.
struct PackedSlots {
  const std::uint32_t* begin;      // [ranks]: the first slot here of each rank's results
  const std::uint32_t* of_result;  // [max_tokens, results per token]: earlier results of the same expert rank
  const std::uint32_t* begin_at;   // [ranks]: the first slot of this rank's results at each source
  const std::uint32_t* before;     // [ranks, max_tokens]: this rank's results to a source for tokens before this one
};

// What a mask says of a masked rank; the latter in dispatches with a handle on GPUs.
inline constexpr std::uint8_t kMasked = 1;
inline constexpr std::uint8_t kMaskedInReplay = 2;

struct Plan {
  Shape shape;  // as the protocol sees it: one rank, and its experts only, in skip_a2a mode
  ExpertSplit split;
  Divider by_ranks;
  Divider by_top_k;
  HeapMap map;
  EntryCode code;
  int rank = 0;        // in `shape`
  int first_id = 0;    // the caller's id of the first expert of `shape`: skip_a2a: this rank's first expert, else 0
  bool exact = false;  // of the combine: each row is a result
  const PackedSlots* packed = nullptr;  // where results are packed (I9), else null; renewed per round
  int shared_groups = 0;                // 1 with a fused shared expert
  int alignment = 1;
  const std::uint8_t* masked = nullptr;  // [ranks]: not 0 for masked ranks; fixed per round. Null: no rank is masked

  // The plan with the fields that follow from the others.
  void set_shape(const Shape& of) {
    shape = of;
    split = ExpertSplit(of);
    by_ranks = Divider(of.ranks);
    by_top_k = Divider(of.top_k);
  }
  FERRY_HD bool is_masked(int peer) const { return masked != nullptr && masked[peer] != 0; }
  // A masked rank that counts as a source without rows.
  FERRY_HD bool is_silent(int peer) const { return masked != nullptr && masked[peer] == kMasked; }
  // A masked rank whose counts this rank has written itself (cuda/steps/masked_sources.cuh).
  FERRY_HD bool has_stand_in(int peer) const { return masked != nullptr && masked[peer] == kMaskedInReplay; }
  FERRY_HD int owner_of(int expert) const { return split.owner_of(expert); }
  FERRY_HD ExpertRange experts_of(int of) const { return split.experts_of(of); }
  FERRY_HD int local_experts() const { return experts_of(rank).count; }
  FERRY_HD int groups() const { return local_experts() + shared_groups; }
};

// The scales of rows at strides that the caller chose, beside or in place of a ScaleTensor.
struct RowScales {
  enum class As : std::uint8_t { they_are, numbers, groups_of_four };
  std::byte* data = nullptr;  // null: none
  As as = As::they_are;
  int count = 0;                   // scales of a row
  int scale_bytes = 0;             // of a scale as it travels
  std::int64_t group_rows = 0;     // rows of a group, where groups lie apart, else 0
  std::int64_t group_stride = 0;   // bytes, as all strides
  std::int64_t row_stride = 0;     // from a row of a group to the next
  std::int64_t column_stride = 0;  // from a column of a row to the next
};

struct RowsOut {
  std::byte* payload = nullptr;
  std::size_t row_bytes = 0;
  ScaleTensor scales{};
  // These four are null where the row order has no such output, or the caller left it out.
  std::uint32_t* row_offsets = nullptr;
  std::int32_t* expert_ids = nullptr;
  std::int32_t* src_info = nullptr;
  std::uint32_t* scales_offsets = nullptr;
  bool stores_scales = false;  // false: the format has none, or the scales kernel stores all of them (I20)
  std::byte* handle = nullptr;
  RowOrder order = RowOrder::by_expert;
  std::uint32_t expert_stride = 0;  // padded
  std::int64_t row_capacity = 0;
  // So are these.
  std::int32_t* counts = nullptr;
  void* row_topk_ids = nullptr;
  bool has_i64_ids = false;
  float* row_topk_weights = nullptr;
  std::uint32_t* source_offsets = nullptr;
  std::int32_t* gather = nullptr;
  // WorldCapabilities::more_outputs; null where the caller left it out.
  RowScales row_scales{};
  std::int32_t* source_starts = nullptr;
  float* row_weights = nullptr;
  std::int32_t* row_sources = nullptr;
  std::int32_t* messages = nullptr;
  std::int64_t message_capacity = 0;
  std::int32_t* overflow = nullptr;
  std::int32_t* cumulative_counts = nullptr;
  std::int64_t* waited_ns = nullptr;
  bool zeroes_padding = false;
  bool may_overflow = false;     // rows behind row_capacity, or behind expert_stride where they are padded, are dropped
  GlobalScales global_scales{};  // where each row has one
};

// Where the rows of every (source, local expert) begin. It follows only from the counts, whatever has arrived.
struct RowStarts {
  const std::uint32_t* of_source = nullptr;  // [ranks, local experts]: first row, counted from that of its group
  const std::uint32_t* group = nullptr;      // [groups + 1]: row_offsets
  const std::uint32_t* filled = nullptr;     // [groups]: rows of the group that are not padding
  const std::uint32_t* tiles = nullptr;      // [groups]: scales_offsets, whatever the layout
  const std::uint32_t* tokens = nullptr;     // [ranks + 1]: tokens of every source; the last is the largest of them
};
// The same memory for the step that fills it, which takes this by value.
struct RowStartsToFill {
  std::uint32_t* of_source = nullptr;
  std::uint32_t* group = nullptr;
  std::uint32_t* filled = nullptr;
  std::uint32_t* tiles = nullptr;
  std::uint32_t* tokens = nullptr;
  FERRY_HD operator RowStarts() const { return {of_source, group, filled, tiles, tokens}; }
};

// Row starts in one array.
FERRY_HD constexpr int row_start_words(int ranks, int local_experts, int groups) {
  return ranks * (local_experts + 1) + 3 * groups + 2;
}
FERRY_HD inline int row_start_words(const Plan& plan) {
  return row_start_words(plan.shape.ranks, plan.local_experts(), plan.groups());
}
FERRY_HD inline RowStartsToFill row_starts_at(const Plan& plan, std::uint32_t* words) {
  RowStartsToFill starts;
  starts.of_source = words;
  starts.group = starts.of_source + plan.shape.ranks * plan.local_experts();
  starts.filled = starts.group + plan.groups() + 1;
  starts.tiles = starts.filled + plan.groups();
  starts.tokens = starts.tiles + plan.groups();
  return starts;
}

// I4: the row of an entry, only from table and counts. Every row number that leaves a lookup comes from here.
FERRY_HD inline std::uint32_t row_of(const Plan& plan, const RowStarts& starts, int source, int local,
                                     std::uint32_t position_in_expert) {
  return starts.group[local + plan.shared_groups] + starts.of_source[source * plan.local_experts() + local] +
         position_in_expert;
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
  int length;  // positions in the sequence; those past the tokens of a source are empty

  // `first`: a rank, or the number of ranks for the first one.
  FERRY_HD TokenSequence(const Plan& plan, const RowStarts& starts, int first)
      : TokenSequence(plan, static_cast<int>(starts.tokens[plan.shape.ranks]), first) {}
  FERRY_HD TokenSequence(const Plan& plan, int most_tokens, int first)
      : by_ranks(plan.by_ranks), first_source(first), length(plan.shape.ranks * most_tokens) {}
  FERRY_HD TokenAt at(int position) const {
    const int token = by_ranks.quotient(position);
    const int source = first_source + position - token * by_ranks.divisor();
    return {source < by_ranks.divisor() ? source : source - by_ranks.divisor(), token};
  }
};

// routed_expert where no rank is masked.
FERRY_HD inline int unmasked_expert(const Plan& plan, std::int64_t id) {
  const std::int64_t expert = id - plan.first_id;
  return id < 0 || expert < 0 || expert >= plan.shape.experts ? -1 : static_cast<int>(expert);
}

// The expert, as the protocol counts it, that entry (token, k) of the caller's ids goes to; -1: none, not local
// (skip_a2a) or masked (I11: only in the source's table). I3: every use of the caller's ids comes through here, so
// table and messages agree.
FERRY_HD inline int routed_expert(const Plan& plan, std::int64_t id, bool* dropped = nullptr) {
  const int expert = unmasked_expert(plan, id);
  if (expert < 0 || !plan.is_masked(plan.owner_of(expert))) return expert;
  if (dropped != nullptr) *dropped = true;
  return -1;
}

template <Fabric F>
FERRY_HD const RoutingEntry* table_of(const Plan& plan, const F& fabric, Epoch epoch, int source) {
  return reinterpret_cast<const RoutingEntry*>(fabric.local(plan.map.table(epoch, source)));
}
// The entries of one token in a routing table.
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
