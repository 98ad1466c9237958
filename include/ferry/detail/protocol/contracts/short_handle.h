// ShortHandle: the parts of a handle that holds only what came: its size follows from numbers in its header, not from
// max_tokens. Calls make a whole handle (KeptRouting) of it before they read it, in memory of the exchange; so a
// dispatch and a combine know of whole ones only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/protocol/contracts/handle.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry {

// A token that came and has a row here.
struct ShortMessage {
  std::uint32_t place;    // (source * max_tokens + token) << kSlotBits, and below it the slot of this rank's result
  std::uint32_t has_row;  // bit k: its k-th entry has a row

  static constexpr int kSlotBits = 5;
  FERRY_HD std::uint32_t slot() const { return place & ((1u << kSlotBits) - 1); }
  FERRY_HD std::uint32_t token() const { return place >> kSlotBits; }  // KeptRouting::index_of
};
static_assert(sizeof(ShortMessage) == 8);
static_assert(kMaxTopK <= 1 << ShortMessage::kSlotBits, "a slot is below top_k, and an entry has a bit");

// Whether a short handle can number so many tokens, those of all sources. A short handle of more is a whole one.
constexpr bool can_be_short(std::int64_t tokens) { return tokens <= std::int64_t{1} << (32 - ShortMessage::kSlotBits); }

struct ShortHandle {
  HandleHeader* header = nullptr;
  std::uint8_t* masked = nullptr;  // [ranks], and as in KeptRouting:
  RowStartsToFill starts;
  ResultsBefore* results_before = nullptr;  // [ranks]
  RoutingEntry* own = nullptr;              // [num_tokens, top_k]
  // By source, then token; and their rows, k ascending. first_rows: of each kRun-th message.
  std::uint32_t* first_rows = nullptr;  // [runs_of(short_messages)]
  ShortMessage* messages = nullptr;     // [short_messages]
  HandleRow* rows = nullptr;            // [short_rows]

  static constexpr std::uint32_t kRun = 32;
  FERRY_HD static constexpr std::size_t runs_of(std::size_t messages) { return (messages + kRun - 1) / kRun; }
};

// What came to a rank in a dispatch.
struct Kept {
  std::size_t tokens;  // of this rank
  std::size_t messages;
  std::size_t rows;
};

// Bytes of the parts, in their order, each from a multiple of 16 on.
struct ShortHandleSizes {
  static constexpr int kParts = 8;
  std::size_t end[kParts];

  FERRY_HD constexpr ShortHandleSizes(int ranks, int top_k, int local_experts, int groups, const Kept& kept) : end{} {
    const auto r = static_cast<std::size_t>(ranks);
    const auto words = static_cast<std::size_t>(row_start_words(ranks, local_experts, groups));
    const std::size_t bytes[kParts] = {sizeof(HandleHeader),
                                       r,
                                       words * sizeof(std::uint32_t),
                                       r * sizeof(ResultsBefore),
                                       kept.tokens * static_cast<std::size_t>(top_k) * sizeof(RoutingEntry),
                                       ShortHandle::runs_of(kept.messages) * sizeof(std::uint32_t),
                                       kept.messages * sizeof(ShortMessage),
                                       kept.rows * sizeof(HandleRow)};
    std::size_t at = 0;
    for (int part = 0; part < kParts; ++part) end[part] = at = (at + bytes[part] + 15) / 16 * 16;
  }
  FERRY_HD ShortHandleSizes(const Plan& plan, const Kept& kept)
      : ShortHandleSizes(plan.shape.ranks, plan.shape.top_k, plan.local_experts(), plan.groups(), kept) {}
  FERRY_HD constexpr std::size_t bytes() const { return end[kParts - 1]; }
};

// What a header says, which may be a caller's (I18): no more tokens than a rank has.
FERRY_HD inline Kept kept_by(const Plan& plan, const HandleHeader& h) {
  const int tokens = h.num_tokens < 0 ? 0 : h.num_tokens < plan.shape.max_tokens ? h.num_tokens : plan.shape.max_tokens;
  return {static_cast<std::size_t>(tokens), h.short_messages, h.short_rows};
}

FERRY_HD inline ShortHandle short_handle_at(const Plan& plan, std::byte* handle, const Kept& kept) {
  const ShortHandleSizes sizes(plan, kept);
  ShortHandle at;
  at.header = reinterpret_cast<HandleHeader*>(handle);
  at.masked = reinterpret_cast<std::uint8_t*>(handle + sizes.end[0]);
  at.starts = row_starts_at(plan, reinterpret_cast<std::uint32_t*>(handle + sizes.end[1]));
  at.results_before = reinterpret_cast<ResultsBefore*>(handle + sizes.end[2]);
  at.own = reinterpret_cast<RoutingEntry*>(handle + sizes.end[3]);
  at.first_rows = reinterpret_cast<std::uint32_t*>(handle + sizes.end[4]);
  at.messages = reinterpret_cast<ShortMessage*>(handle + sizes.end[5]);
  at.rows = reinterpret_cast<HandleRow*>(handle + sizes.end[6]);
  return at;
}
// For calls that only read: nothing is written through the view.
FERRY_HD inline ShortHandle short_handle_at(const Plan& plan, const std::byte* handle, const Kept& kept) {
  return short_handle_at(plan, const_cast<std::byte*>(handle), kept);
}

// The header of the whole handle that is made of a short one; and of the short one that is made of a whole one.
FERRY_HD inline HandleHeader whole_header(HandleHeader h) {
  h.magic = kHandleMagic;
  h.short_messages = h.short_rows = 0;
  return h;
}
FERRY_HD inline HandleHeader short_header(HandleHeader h, const Kept& kept) {
  h.magic = kShortHandleMagic;
  h.short_messages = static_cast<std::uint32_t>(kept.messages);
  h.short_rows = static_cast<std::uint32_t>(kept.rows);
  return h;
}

}  // namespace ferry
