#include "exchange/checks/handle_check.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "exchange/checks/tensor_checks.h"

namespace ferry {
namespace {

void require_equal(const CheckContext& c, const char* field, std::int64_t got, std::int64_t wanted) {
  if (got != wanted) refuse_handle(c, "{} is {}; it must be {}", field, got, wanted);
}
void require_at_most(const CheckContext& c, const char* field, std::int64_t got, std::int64_t most) {
  if (got < 0 || got > most) refuse_handle(c, "{} is {}; it must be 0 to {}", field, got, most);
}

// The same of a field of a group.
void require_equal(const CheckContext& c, const char* field, int group, std::int64_t got, std::int64_t wanted) {
  if (got != wanted) refuse_handle(c, "{} of group {} is {}; it must be {}", field, group, got, wanted);
}
void require_at_most(const CheckContext& c, const char* field, int group, std::int64_t got, std::int64_t most) {
  if (got < 0 || got > most) refuse_handle(c, "{} of group {} is {}; it must be 0 to {}", field, group, got, most);
}

}  // namespace

void refuse_handle_as(const CheckContext& c, const std::string& why) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("rank {}: handle: {}. Give a handle that a dispatch of this rank left, whole and unchanged",
                          c.rank, why));
}

namespace {

// The handle is good, but not for this call: `format` says what to change there.
template <class... Args>
[[noreturn]] void refuse_use(const CheckContext& c, fmt::format_string<Args...> format, Args&&... args) {
  refuse_call(c, "handle: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

void check_handle_header(const CheckContext& c, const HandleHeader& h) {
  if (h.magic != kHandleMagic)
    refuse_handle(c, "its first word is {:#x}; that of a handle is {:#x}", h.magic, kHandleMagic);
  HandleHeader wanted = handle_header(c.rank, c.shape, c.options, {});
  wanted.order = h.order;
  for_each_shape_field([&](HandleField, const char* name, std::int32_t HandleHeader::*member) {
    require_equal(c, name, h.*member, wanted.*member);
  });
  require_at_most(c, "order of rows", h.order, kRowOrders - 1);
  if (const auto order = static_cast<RowOrder>(h.order); !c.options.row_orders.has(order))
    refuse_use(c, "its order of rows is {}; this exchange was made for {}. Make it with {} in row_orders, too",
               to_string(order), to_string(c.options.row_orders), to_string(order));
  require_at_most(c, "number of tokens", h.num_tokens, c.shape.max_tokens);
  require_at_most(c, "number of rows", h.num_rows, INT32_MAX);
  require_at_most(c, "last shared token", h.shared_end, h.num_tokens);
  require_at_most(c, "first shared token", h.shared_begin, h.shared_end);
  if (h.alignment < 1 || h.alignment > 128 || (h.alignment & (h.alignment - 1)) != 0)
    refuse_handle(c, "alignment is {}; it must be a power of two up to 128", h.alignment);
}

namespace {

// padded: each group begins one stride after the group before it.
RowChoice rows_of(const CheckContext& c, const HandleHeader& h) {
  const auto order = static_cast<RowOrder>(h.order);
  if (order != RowOrder::padded) return {order, 0};
  if (h.num_rows % static_cast<std::uint32_t>(c.layout.groups) != 0)
    refuse_handle(c, "number of rows is {}; {} padded experts have as many each", h.num_rows, c.layout.groups);
  return {order, h.num_rows / static_cast<std::uint32_t>(c.layout.groups)};
}

// Row starts follow from the number of rows of each group, as find_row_starts makes them: rows, and tiles of scales,
// are addressed by them (I18). In a group they grow from source to source.
void check_groups(const CheckContext& c, const Plan& plan, const KeptRouting& kept, const RowChoice& rows) {
  const RowStarts& starts = kept.starts;
  const int groups = plan.groups();
  const int experts = plan.local_experts();
  std::uint32_t first = 0;
  std::int64_t tiles = 0;
  for (int group = 0; group < groups; ++group) {
    const std::uint32_t filled = starts.filled[group];
    require_at_most(c, "number of rows", group, filled, std::int64_t{kept.header->num_rows} - first);
    require_equal(c, "row_offsets", group, starts.group[group], first);
    require_equal(c, "scales_offsets", group, starts.tiles[group], scales_offset_of(tiles, first));
    const auto stride = static_cast<std::uint32_t>(rows.expert_stride);
    if (rows.order == RowOrder::padded) require_at_most(c, "number of rows", group, filled, stride);
    first += rows.order == RowOrder::padded ? stride : align_row(filled, kept.header->alignment);
    tiles += scale_blocks(rows.order == RowOrder::padded ? stride : filled);
    const int local = group - plan.shared_groups;
    std::uint32_t before = 0;
    for (int source = 0; local >= 0 && source < plan.shape.ranks; ++source) {
      const std::uint32_t start = starts.of_source[source * experts + local];
      if (start < before || start > filled)
        refuse_handle(c, "the first row of source {} in group {} is {}; it must be {} to {}", source, group, start,
                      before, filled);
      before = start;
    }
  }
  require_equal(c, "row_offsets[groups]", starts.group[groups], first);
  require_equal(c, "number of rows", kept.header->num_rows, first);
  if (plan.shared_groups != 0)
    require_equal(c, "rows of the shared expert", starts.filled[0],
                  kept.header->shared_end - kept.header->shared_begin);
}

void check_tokens(const CheckContext& c, const Plan& plan, const KeptRouting& kept) {
  const RowStarts& starts = kept.starts;
  std::uint32_t most = 0;
  for (int source = 0; source < plan.shape.ranks; ++source) {
    if (starts.tokens[source] > static_cast<std::uint32_t>(plan.shape.max_tokens))
      refuse_handle(c, "the number of tokens of rank {} is {}; it must be 0 to {}", source, starts.tokens[source],
                    plan.shape.max_tokens);
    most = std::max(most, starts.tokens[source]);
  }
  require_equal(c, "most tokens of a source", starts.tokens[plan.shape.ranks], most);
  require_equal(c, "tokens of this rank", starts.tokens[plan.rank], kept.header->num_tokens);
}

// Returns how many rows the token has.
std::uint32_t check_rows(const CheckContext& c, const Plan& plan, const KeptRouting& kept, TokenAt at) {
  const std::size_t index = kept.index_of(plan, at);
  const HandleRow* rows = kept.rows + index * static_cast<std::size_t>(plan.shape.top_k);
  std::uint32_t found = 0;
  for (int k = 0; k < plan.shape.top_k; ++k) {
    if (rows[k].row == kNoRow) continue;
    ++found;
    if (rows[k].row >= kept.header->num_rows)
      refuse_handle(c, "the row of token {} of rank {}, k = {}, is {}; there are {} rows", at.token, at.source, k,
                    rows[k].row, kept.header->num_rows);
  }
  const int slots = std::min(plan.shape.top_k, plan.shape.ranks);
  if (found != 0 && kept.slots[index] >= slots)
    refuse_handle(c, "the result slot of token {} of rank {} is {}; it must be 0 to {}", at.token, at.source,
                  kept.slots[index], slots - 1);
  return found;
}

}  // namespace

std::byte* check_handle_tensor(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (!tensor) return nullptr;
  const auto bytes = static_cast<std::int64_t>(c.layout.handle_bytes);
  if (c.takes_host_memory && tensor.device.kind == Device::Kind::cuda)
    refuse_handle(c, "{} is memory of {}; this exchange takes host memory", name, to_string(tensor.device));
  const std::int64_t least = c.options.short_handles ? c.layout.short_handle_bytes(0, 0, 0) : bytes;
  if (tensor.dtype == DType::u8 && tensor.rank == 1 && tensor.is_contiguous() && tensor.shape[0] != bytes &&
      c.options.short_handles && (tensor.shape[0] < least || tensor.shape[0] > bytes))
    refuse_handle(c, "{} is {}; it must have {} to {} bytes (RowLayout::short_handle_bytes, handle_bytes)", name,
                  to_string(tensor), least, bytes);
  if (tensor.dtype != DType::u8 || tensor.rank != 1 || tensor.shape[0] < least || tensor.shape[0] > bytes ||
      !tensor.is_contiguous())
    refuse_handle(c,
                  "{} is {}; it must be u8 [{}] without gaps (RowLayout::handle_bytes), or less where the exchange has "
                  "short_handles",
                  name, to_string(tensor), bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % 16 != 0) refuse_handle(c, "{} starts at {:#x}; its address must be a multiple of 16", name, address);
  return const_cast<std::byte*>(static_cast<const std::byte*>(tensor.data));
}

void check_replay_output(const CheckContext& c, const RowsOut& out, const HandleFacts& facts) {
  if (facts.rows.order == RowOrder::padded) return;  // rows have no alignment, and their stride holds all of them
  if (!out.may_overflow && out.row_capacity < facts.num_rows)
    refuse_use(c, "its dispatch has {} rows; {} holds {}. Give outputs of {} rows or more (RowCounts::rows)",
               facts.num_rows, facts.rows.order == RowOrder::in_place ? "gather" : "payload", out.row_capacity,
               facts.num_rows);
}

void check_replayed_order(const CheckContext& c, const RowChoice& asked, const HandleFacts& facts) {
  if (asked.order != facts.rows.order)
    refuse_use(c, "the rows of its dispatch are {}; row_order is {}. Say {}", to_string(facts.rows.order),
               to_string(asked.order), to_string(facts.rows.order));
  if (asked.expert_stride != 0 && asked.expert_stride != facts.rows.expert_stride)
    refuse_use(c, "its experts begin {} rows apart; expert_stride is {}. Say {}", facts.rows.expert_stride,
               asked.expert_stride, facts.rows.expert_stride);
  const bool is_aligned = facts.rows.order == RowOrder::by_expert || facts.rows.order == RowOrder::in_place;
  if (is_aligned && facts.alignment % c.layout.alignment != 0)
    refuse_use(c,
               "it aligns the rows of an expert to {}; this exchange aligns them to {}. Make it with expert_alignment "
               "{}, or less, in the format of the call",
               facts.alignment, c.layout.alignment, facts.alignment);
}

HandleHeader handle_header(int rank, const Shape& shape, const ExchangeOptions& options, const HandleFacts& facts) {
  HandleHeader h;
  h.routing = facts.routing;
  h.ranks = shape.ranks;
  h.experts = shape.experts;
  h.top_k = shape.top_k;
  h.max_tokens = shape.max_tokens;
  h.rank = rank;
  h.skips_a2a = options.skip_a2a ? 1 : 0;
  h.shared_groups = options.fused_shared_expert ? 1 : 0;
  h.order = static_cast<std::int32_t>(facts.rows.order);
  h.alignment = facts.alignment;
  h.num_tokens = facts.num_tokens;
  h.num_rows = facts.num_rows;
  h.shared_begin = facts.shared.begin;
  h.shared_end = facts.shared.end;
  return h;
}

HandleFacts check_handle(const CheckContext& c, const Plan& plan, const std::byte* handle, HandleOf of) {
  const KeptRouting kept = kept_routing_at(plan, handle);
  const HandleHeader& h = *kept.header;
  check_handle_header(c, h);
  if (kept.masked[plan.rank] != 0) refuse_handle(c, "its mask has this rank");
  const RowChoice rows = rows_of(c, h);
  const bool has_one_row_each = rows.order == RowOrder::by_source && of == HandleOf::gpu;
  if (!has_one_row_each) check_groups(c, plan, kept, rows);
  check_tokens(c, plan, kept);
  for (int token = 0; token < h.num_tokens; ++token)
    for (int k = 0; k < plan.shape.top_k; ++k) {
      const int expert = plan.code.expert(kept.own[token * plan.shape.top_k + k].code);
      if (expert < -1 || expert >= plan.shape.experts)
        refuse_handle(c, "the expert of token {}, k = {}, is {}; it must be -1 to {}", token, k, expert,
                      plan.shape.experts - 1);
    }
  const std::int64_t slots =
      std::int64_t{plan.shape.max_tokens} * static_cast<std::int64_t>(plan.map.results_per_token());
  std::uint32_t messages = 0;
  for (int source = 0; source < plan.shape.ranks; ++source) {
    std::uint32_t results = 0, rows_sent = 0;
    for (int token = 0; token < static_cast<int>(kept.starts.tokens[source]); ++token) {
      const std::uint32_t found = check_rows(c, plan, kept, {source, token});
      if (has_one_row_each && found > 1)
        refuse_handle(c, "token {} of rank {} has {} rows; it must have one", token, source, found);
      results += std::min(found, 1u);
      rows_sent += found;
      messages += std::min(found, 1u);
    }
    if (plan.packed == nullptr) continue;
    const ResultsBefore& before = kept.results_before[source];
    const bool sends_rows = plan.map.has_slot_of_each_k();  // in some combine
    const std::int64_t end = std::max(std::int64_t{before.by_rank} + results,
                                      sends_rows ? std::int64_t{before.exact} + rows_sent : std::int64_t{0});
    if (end > slots)
      refuse_handle(c, "the results of rank {} end at slot {}; it has {} slots for results", source, end, slots);
  }
  return {h.num_tokens,
          rows.order == RowOrder::by_source ? messages : h.num_rows,  // of a GPU they are equal
          h.routing,
          h.alignment,
          {h.shared_begin, h.shared_end},
          rows,
          h.has_weights != 0,
          h.row_room - 1,  // 0: all
          h.by_counts != 0};
}

}  // namespace ferry
