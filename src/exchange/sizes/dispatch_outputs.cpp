// The public list of a dispatch's outputs, and the sizes that it rests on.
#include "ferry/dispatch_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "ferry/detail/protocol/contracts/short_handle.h"
#include "ferry/error.h"

namespace ferry {

std::int64_t RowLayout::least_rows(RowOrder order, std::int64_t expert_stride) const {
  switch (order) {
    case RowOrder::by_expert:
    case RowOrder::in_place:
      return min_row_capacity;
    case RowOrder::by_source:
      return expert_rows;
    case RowOrder::padded:
      return groups * (expert_stride == 0 ? expert_rows : expert_stride);
  }
  return min_row_capacity;
}

std::vector<std::int64_t> RowLayout::scales_shape(std::int64_t row_capacity, RowOrder order,
                                                  std::int64_t expert_stride) const {
  if (order == RowOrder::padded && scale_layout == ScaleLayout::transposed)
    return {groups, scales_per_row, expert_stride == 0 ? expert_rows : expert_stride};
  switch (scale_layout) {
    case ScaleLayout::none:
      return {};
    case ScaleLayout::row_major:
      return {row_capacity, scales_per_row};
    case ScaleLayout::transposed:
      return {scales_per_row, row_capacity};
    case ScaleLayout::tiled:
      return {scale_tiles(row_capacity), (scales_per_row + 3) / 4, 32, 4, 4};
  }
  return {};
}

// A group more than there are experts takes a few bytes more.
std::int64_t RowLayout::short_handle_bytes(std::int64_t tokens, std::int64_t messages, std::int64_t rows) const {
  if (tokens < 0 || messages < 0 || rows < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("short_handle_bytes: tokens is {}, messages is {} and rows is {}; each must be 0 or more",
                            tokens, messages, rows));
  if (!can_be_short(expert_rows)) return handle_bytes;
  messages = std::min({messages, rows, expert_rows});
  const Kept kept{static_cast<std::size_t>(std::min(tokens, expert_rows)), static_cast<std::size_t>(messages),
                  static_cast<std::size_t>(std::min(rows, messages * top_k))};
  const ShortHandleSizes sizes(sources, top_k, groups, groups, kept);
  return std::min(static_cast<std::int64_t>(sizes.bytes()), handle_bytes);
}

// Rows by_source are messages; others are as many as messages, or more.
std::int64_t RowLayout::short_handle_bytes(std::int64_t tokens, const RowCounts& counts) const {
  const auto sum = [](const std::vector<std::int64_t>& each) {
    return std::accumulate(each.begin(), each.end(), std::int64_t{0});
  };
  const std::int64_t messages = sum(counts.by_source);
  return short_handle_bytes(tokens, messages, std::max(messages, sum(counts.by_expert)));
}

std::size_t TensorSpec::bytes() const {
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return bytes;
}

namespace {

constexpr RowOrders kGrouped{RowOrder::by_expert, RowOrder::padded, RowOrder::in_place};
constexpr RowOrders kCopied{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded};
constexpr RowOrders kAnyOrder{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
constexpr RowOrders kBySource{RowOrder::by_source};
constexpr RowOrders kNone{};

// An output, and the orders of rows that have it.
struct OutputRule {
  TensorSpec spec;
  RowOrders orders;
  RowOrders needed;  // by which orders it may not be left out
  RowOrders usual;   // in which orders every world writes it
};

void add(std::vector<OutputRule>& rules, const char* name, TensorSpec::Field field, DType dtype,
         std::vector<std::int64_t> shape, const OutputRule& rule) {
  rules.push_back(rule);
  rules.back().spec = {name, field, dtype, std::move(shape), size_of(dtype), false};
}

// Payload and scales.
void add_row_bytes(std::vector<OutputRule>& rules, const RowLayout& layout, std::int64_t rows, RowOrder order,
                   std::int64_t expert_stride) {
  const bool is_bf16 =
      layout.scale_layout == ScaleLayout::none && layout.payload_row_bytes == 2 * std::int64_t{layout.hidden};
  const std::int64_t columns = is_bf16 ? layout.hidden : layout.payload_row_bytes;
  add(rules, "payload", &DispatchOutput::payload, is_bf16 ? DType::bf16 : DType::u8, {rows, columns},
      {{}, kCopied, kCopied, kCopied});
  rules.back().spec.alignment = 16;
  if (layout.scale_layout == ScaleLayout::none) return;
  add(rules, "scales", &DispatchOutput::scales, layout.scale_dtype, layout.scales_shape(rows, order, expert_stride),
      {{}, kCopied, kCopied, kCopied});
  if (layout.scale_layout == ScaleLayout::tiled) rules.back().spec.alignment = 16;
}

// In the order of DispatchOutput.
std::vector<OutputRule> output_rules(const RowLayout& layout, std::int64_t rows, RowOrder order,
                                     std::int64_t expert_stride) {
  using Out = DispatchOutput;
  const std::int64_t groups = layout.groups, sources = layout.sources, top_k = layout.top_k;
  constexpr RowOrders padded{RowOrder::padded}, in_place{RowOrder::in_place};
  constexpr RowOrders ordered{RowOrder::by_source, RowOrder::padded};
  std::vector<OutputRule> rules;
  add_row_bytes(rules, layout, rows, order, expert_stride);
  add(rules, "row_offsets", &Out::row_offsets, DType::u32, {groups + 1}, {{}, kGrouped, kNone, kGrouped});
  add(rules, "expert_ids", &Out::expert_ids, DType::i32, {groups}, {{}, kGrouped, kNone, kGrouped});
  add(rules, "src_info", &Out::src_info, DType::i32, {rows, 2}, {{}, kAnyOrder, kNone, kAnyOrder});
  if (layout.scale_layout == ScaleLayout::tiled) {
    constexpr RowOrders tiled{RowOrder::by_expert, RowOrder::padded};
    add(rules, "scales_offsets", &Out::scales_offsets, DType::u32, {groups}, {{}, tiled, tiled, tiled});
  }
  add(rules, "handle", &Out::handle, DType::u8, {layout.handle_bytes}, {{}, kAnyOrder, kNone, kNone});
  rules.back().spec.alignment = 16;
  add(rules, "counts", &Out::counts, DType::i32, {groups}, {{}, kAnyOrder, padded, ordered});
  add(rules, "row_topk_ids", &Out::row_topk_ids, DType::i32, {rows, top_k}, {{}, kBySource, kNone, kBySource});
  add(rules, "row_topk_weights", &Out::row_topk_weights, DType::f32, {rows, top_k}, {{}, kBySource, kNone, kBySource});
  add(rules, "source_offsets", &Out::source_offsets, DType::u32, {sources + 1}, {{}, kAnyOrder, kBySource, kBySource});
  if (layout.has_global_scales)
    add(rules, "global_scales", &Out::global_scales, DType::f32, {rows}, {{}, kCopied, kCopied, kCopied});
  add(rules, "gather", &Out::gather, DType::i32, {rows}, {{}, in_place, in_place, in_place});
  add(rules, "source_starts", &Out::source_starts, DType::i32, {groups, sources}, {{}, kAnyOrder, kNone, kNone});
  add(rules, "row_weights", &Out::row_weights, DType::f32, {rows}, {{}, kGrouped, kNone, kNone});
  add(rules, "row_sources", &Out::row_sources, DType::i32, {rows}, {{}, kGrouped, kNone, kNone});
  // Messages come whether their rows fit or not.
  add(rules, "messages", &Out::messages, DType::i32, {layout.expert_rows, 2 + top_k}, {{}, kAnyOrder, kNone, kNone});
  if (layout.scale_layout != ScaleLayout::none)
    add(rules, "row_scales", &Out::row_scales, layout.scale_dtype, {rows, layout.scales_per_row},
        {{}, kCopied, kNone, kNone});
  add(rules, "overflow", &Out::overflow, DType::i32, {1}, {{}, kAnyOrder, kNone, kNone});
  add(rules, "cumulative_counts", &Out::cumulative_counts, DType::i32, {groups}, {{}, kAnyOrder, kNone, kNone});
  add(rules, "waited_ns", &Out::waited_ns, DType::i64, {sources}, {{}, kAnyOrder, kNone, kNone});
  return rules;
}

// As in a dispatch, where a row has 31 bits.
void require_at_most_all_rows(const char* name, std::int64_t rows) {
  if (rows > INT32_MAX)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("dispatch_outputs: {} is {}; the limit is 2147483647, all rows that there can be", name, rows));
}

}  // namespace

std::vector<TensorSpec> dispatch_outputs(const RowLayout& layout, std::int64_t row_capacity, RowOrder order,
                                         std::int64_t expert_stride, OutputList list) {
  require_at_most_all_rows("row_capacity", row_capacity);  // so TensorSpec::bytes has them without an overflow
  require_at_most_all_rows("expert_stride", expert_stride);
  const std::int64_t least = order == RowOrder::padded ? layout.least_rows(order, expert_stride) : 0;
  if (row_capacity < least)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("dispatch_outputs: row_capacity is {}; the limit is {} or more{}", row_capacity, least,
                            order == RowOrder::padded ? " (RowLayout::least_rows)" : ""));
  std::vector<TensorSpec> specs;
  for (OutputRule& rule : output_rules(layout, row_capacity, order, expert_stride)) {
    if (!(list == OutputList::all ? rule.orders : rule.usual).has(order)) continue;
    rule.spec.is_optional = !rule.needed.has(order);
    specs.push_back(std::move(rule.spec));
  }
  return specs;
}

}  // namespace ferry
