#include "exchange/handles/short_handle.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "exchange/checks/handle_check.h"

namespace ferry {
namespace {

std::uint32_t entries_with_row(const HandleRow* rows, int top_k) {
  std::uint32_t bits = 0;
  for (int k = 0; k < top_k; ++k) bits |= rows[k].row != kNoRow ? 1u << k : 0u;
  return bits;
}

// Calls visit(its index in the whole handle, entries_with_row) for each token that came and has a row.
template <class Visit>
void for_each_message(const Plan& plan, const KeptRouting& whole, const Visit& visit) {
  for (int source = 0; source < plan.shape.ranks; ++source)
    for (int token = 0; token < static_cast<int>(whole.starts.tokens[source]); ++token) {
      const std::size_t index = whole.index_of(plan, {source, token});
      const std::uint32_t bits =
          entries_with_row(whole.rows + index * static_cast<std::size_t>(plan.shape.top_k), plan.shape.top_k);
      if (bits != 0) visit(index, bits);
    }
}

// The parts that do not grow with the messages.
void copy_own_part(const Plan& plan, std::size_t entries, const std::uint8_t* masked, const RowStarts& starts,
                   const ResultsBefore* before, const RoutingEntry* own, const auto& to) {
  const auto ranks = static_cast<std::size_t>(plan.shape.ranks);
  std::copy_n(masked, ranks, to.masked);
  std::copy_n(starts.of_source, row_start_words(plan), to.starts.of_source);
  std::copy_n(before, ranks, to.results_before);
  std::copy_n(own, entries, to.own);
}

void require_first_word(const CheckContext& c, const HandleHeader& h, std::int64_t bytes) {
  if (h.magic == kShortHandleMagic) return;
  if (h.magic == kHandleMagic)
    refuse_handle(c, "it is a whole one, of {} bytes, and is given with {}", c.layout.handle_bytes, bytes);
  if (const std::uint64_t wanted = bytes_wanted_by(h.magic); wanted != 0)
    refuse_handle(c, "its dispatch left none, as it wanted {} bytes and had {} (RowLayout::short_handle_bytes)", wanted,
                  bytes);
  refuse_handle(c, "its first word is {:#x}; that of a short handle is {:#x}", h.magic, kShortHandleMagic);
}

// Every token that came has no row yet.
void clear_rows(const Plan& plan, const KeptRouting& to) {
  for (int source = 0; source < plan.shape.ranks; ++source) {
    const auto tokens = std::min(to.starts.tokens[source], static_cast<std::uint32_t>(plan.shape.max_tokens));
    const std::size_t entries = std::size_t{tokens} * static_cast<std::size_t>(plan.shape.top_k);
    std::fill_n(to.rows + to.index_of(plan, {source, 0}) * static_cast<std::size_t>(plan.shape.top_k), entries,
                HandleRow{kNoRow, 0.0f});
  }
}

// I18: a message names a token that came, and its rows are among those of the handle.
void spread_messages(const CheckContext& c, const Plan& plan, const ShortHandle& from, const Kept& kept,
                     const KeptRouting& to) {
  const auto top_k = static_cast<std::size_t>(plan.shape.top_k);
  const auto max_tokens = static_cast<std::uint32_t>(plan.shape.max_tokens);
  std::size_t row = 0;
  for (std::size_t i = 0; i < kept.messages; ++i) {
    const ShortMessage message = from.messages[i];
    const std::uint32_t source = message.token() / max_tokens;
    if (source >= static_cast<std::uint32_t>(plan.shape.ranks) ||
        message.token() % max_tokens >= to.starts.tokens[source])
      refuse_handle(c, "message {} is of token {} of rank {}, which did not come", i, message.token() % max_tokens,
                    source);
    const auto rows = static_cast<std::size_t>(std::popcount(message.has_row));
    if (rows == 0 || static_cast<int>(std::bit_width(message.has_row)) > plan.shape.top_k || rows > kept.rows - row)
      refuse_handle(c, "message {} says {:#x} of its {} entries, and {} rows are left", i, message.has_row, top_k,
                    kept.rows - row);
    if (i % ShortHandle::kRun == 0 && from.first_rows[i / ShortHandle::kRun] != row)
      refuse_handle(c, "the first row of message {} is {}; it must be {}", i, from.first_rows[i / ShortHandle::kRun],
                    row);
    to.slots[message.token()] = static_cast<std::uint8_t>(message.slot());
    for (std::uint32_t rest = message.has_row; rest != 0; rest &= rest - 1)
      to.rows[message.token() * top_k + static_cast<std::size_t>(std::countr_zero(rest))] = from.rows[row++];
  }
  if (row != kept.rows) refuse_handle(c, "its messages have {} rows; it has {}", row, kept.rows);
}

}  // namespace

std::size_t shorten_handle(const Plan& plan, const std::byte* whole_handle, std::byte* to, std::size_t bytes) {
  const KeptRouting whole = kept_routing_at(plan, whole_handle);
  Kept kept = kept_by(plan, *whole.header);
  kept.messages = kept.rows = 0;
  for_each_message(plan, whole, [&](std::size_t, std::uint32_t bits) {
    ++kept.messages;
    kept.rows += static_cast<std::size_t>(std::popcount(bits));
  });
  const std::size_t wanted = ShortHandleSizes(plan, kept).bytes();
  if (wanted > bytes) {
    const std::uint64_t word = no_room_word(wanted);
    std::memcpy(to, &word, sizeof word);
    return wanted;
  }
  const ShortHandle at = short_handle_at(plan, to, kept);
  const auto top_k = static_cast<std::size_t>(plan.shape.top_k);
  *at.header = short_header(*whole.header, kept);
  copy_own_part(plan, kept.tokens * top_k, whole.masked, whole.starts, whole.results_before, whole.own, at);
  std::size_t message = 0, row = 0;
  for_each_message(plan, whole, [&](std::size_t index, std::uint32_t bits) {
    if (message % ShortHandle::kRun == 0) at.first_rows[message / ShortHandle::kRun] = static_cast<std::uint32_t>(row);
    at.messages[message++] = {static_cast<std::uint32_t>(index) << ShortMessage::kSlotBits | whole.slots[index], bits};
    for (std::uint32_t rest = bits; rest != 0; rest &= rest - 1)
      at.rows[row++] = whole.rows[index * top_k + static_cast<std::size_t>(std::countr_zero(rest))];
  });
  return wanted;
}

void lengthen_handle(const CheckContext& c, const Plan& plan, const ConstTensor& handle, std::byte* whole) {
  const auto* bytes = static_cast<const std::byte*>(handle.data);
  HandleHeader header;
  std::memcpy(&header, bytes, sizeof header);
  require_first_word(c, header, handle.shape[0]);
  check_handle_header(c, whole_header(header));
  const Kept kept = kept_by(plan, header);
  if (const std::size_t wanted = ShortHandleSizes(plan, kept).bytes();
      wanted > static_cast<std::size_t>(handle.shape[0]))
    refuse_handle(c, "{} messages with {} rows, which it says it has, take {} bytes; it is given with {}",
                  kept.messages, kept.rows, wanted, handle.shape[0]);
  const ShortHandle from = short_handle_at(plan, bytes, kept);
  const KeptRouting to = kept_routing_at(plan, whole);
  *to.header = whole_header(header);
  const std::size_t entries = kept.tokens * static_cast<std::size_t>(plan.shape.top_k);
  copy_own_part(plan, entries, from.masked, from.starts, from.results_before, from.own, to);
  for (std::size_t i = 0; i < entries; ++i) {
    const int expert = plan.code.expert(from.own[i].code);
    to.ids[i] = expert < 0 ? -1 : expert + plan.first_id;
    to.weights[i] = from.own[i].weight;
  }
  clear_rows(plan, to);
  spread_messages(c, plan, from, kept, to);
}

}  // namespace ferry
