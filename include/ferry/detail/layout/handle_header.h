// HandleHeader: the first bytes of a handle, which say whose routing it holds, and the list of what a call compares.
// protocol/contracts/handle.h has what follows.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/formats/portable.h"

namespace ferry {

inline constexpr std::uint64_t kHandleMagic = 0x31656C646E614846ull;       // "FHandle1"
inline constexpr std::uint64_t kShortHandleMagic = 0x3174726F68534846ull;  // "FHShort1": short_handle.h

// The first word of what is no handle, since a short one wants more bytes than there are: a mark, and above it how many
// times 16 bytes it wants.
inline constexpr std::uint64_t kNoRoomMark = 0x6F6E4846u;  // "FHno"
FERRY_HD constexpr std::uint64_t no_room_word(std::uint64_t bytes) { return (bytes + 15) / 16 << 32 | kNoRoomMark; }
// 0: the word is no such word.
FERRY_HD constexpr std::uint64_t bytes_wanted_by(std::uint64_t word) {
  return (word & 0xFFFFFFFFu) == kNoRoomMark ? (word >> 32) * 16 : 0;
}

// Of a routing of an exchange: the exchange's number in its world, which all ranks give it alike, and below it the
// routing's number in that exchange. Ranks of one call may mix up the exchanges that their handles come from (I22).
inline constexpr int kBitsOfRouting = 48;
FERRY_HD constexpr Epoch routing_of_exchange(std::uint32_t exchange, Epoch routing) {
  return Epoch{exchange & 0xFFFFu} << kBitsOfRouting | routing;
}

struct HandleHeader {
  std::uint64_t magic = kHandleMagic;
  Epoch routing = 0;  // routing_of_exchange, of the exchange that made it

  // The caller's shape.
  std::int32_t ranks = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::int32_t max_tokens = 0;

  std::int32_t rank = 0;           // whose handle it is
  std::int32_t skips_a2a = 0;      // 1: its exchange has skip_a2a
  std::int32_t shared_groups = 0;  // 1: its exchange has a fused shared expert
  std::int32_t order = 0;          // of its rows; 0: by expert
  std::int32_t alignment = 1;      // of an expert's first row
  std::int32_t num_tokens = 0;     // of this rank, in its dispatch
  std::uint32_t num_rows = 0;      // row_offsets[groups] of its dispatch
  std::int32_t shared_begin = 0;   // first of the own tokens in the fused shared expert's group
  std::int32_t shared_end = 0;     // behind the last of them
  std::int32_t has_weights = 0;    // 1: its dispatch was given weights
  std::uint32_t row_room = 0;      // 1 + rows that its outputs had room for; 0: all of them
  std::int32_t by_counts = 0;      // 1: its dispatch had counts in place of ids
  std::int32_t reserved[10] = {};
  std::uint32_t short_messages = 0;  // of a short handle
  std::uint32_t short_rows = 0;      // of a short handle: entries of those messages that have a row
};
static_assert(sizeof(HandleHeader) == 128);

// What may be wrong with a handle.
enum class HandleField : std::uint32_t {
  none,
  first_word,
  ranks,
  rank,
  experts,
  top_k,
  max_tokens,
  skip_a2a,
  fused_shared_expert,
  order,
  num_tokens,
  alignment,
  row_room,
  by_counts,
  mask,
  weights,            // its dispatch had weights, and a combine gives some
  weights_by_source,  // a combine gives weights for rows that are sums
  exact_by_source,    // a combine that is exact
  aligned_rows,       // a replay has no room for rows of its alignment
  newest_dispatch,    // a call without a handle: a graph with another dispatch was replayed since its own
};

// Calls visit(field, its name, the member) for each member that must say what this rank's exchange would say.
template <class Visit>
FERRY_HD constexpr void for_each_shape_field(const Visit& visit) {
  visit(HandleField::ranks, "ranks", &HandleHeader::ranks);
  visit(HandleField::rank, "rank", &HandleHeader::rank);
  visit(HandleField::experts, "experts", &HandleHeader::experts);
  visit(HandleField::top_k, "top_k", &HandleHeader::top_k);
  visit(HandleField::max_tokens, "max_tokens", &HandleHeader::max_tokens);
  visit(HandleField::skip_a2a, "skip_a2a", &HandleHeader::skips_a2a);
  visit(HandleField::fused_shared_expert, "fused_shared_expert", &HandleHeader::shared_groups);
  visit(HandleField::order, "order of rows", &HandleHeader::order);
}

// One of the top-k rows of a token, at this rank.
struct HandleRow {
  std::uint32_t row;  // kNoRow: the expert is not of this rank
  float weight;
};
inline constexpr std::uint32_t kNoRow = 0xFFFFFFFFu;

// Where results are packed (I9): how many results of one source lie before this rank's results, in each reduction.
struct ResultsBefore {
  std::uint32_t by_rank;
  std::uint32_t exact;
};

}  // namespace ferry
