// Checks of where a dispatch puts its rows. Nothing has moved yet (I17).
#include <fmt/format.h>

#include "exchange/checks/refuse.h"
#include "exchange/checks/tensor_checks.h"

namespace ferry {
namespace {

// The outputs that only some orders of rows have.
struct OutputOfOrders {
  const char* name;
  Tensor DispatchOutput::*field;
  RowOrders orders;
};
constexpr OutputOfOrders kOutputsOfOrders[] = {
    {"payload", &DispatchOutput::payload, {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded}},
    {"scales", &DispatchOutput::scales, {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded}},
    {"row_offsets", &DispatchOutput::row_offsets, {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place}},
    {"expert_ids", &DispatchOutput::expert_ids, {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place}},
    {"scales_offsets", &DispatchOutput::scales_offsets, {RowOrder::by_expert, RowOrder::padded}},
    {"row_topk_ids", &DispatchOutput::row_topk_ids, {RowOrder::by_source}},
    {"row_topk_weights", &DispatchOutput::row_topk_weights, {RowOrder::by_source}},
    {"gather", &DispatchOutput::gather, {RowOrder::in_place}},
    {"row_weights", &DispatchOutput::row_weights, {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place}},
    {"row_sources", &DispatchOutput::row_sources, {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place}},
    {"row_scales", &DispatchOutput::row_scales, {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded}},
    {"global_scales", &DispatchOutput::global_scales, {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded}},
};

void refuse_outputs_of_other_orders(const CheckContext& c, const DispatchOutput& out, RowOrder order) {
  for (const OutputOfOrders& output : kOutputsOfOrders)
    if (out.*output.field && !output.orders.has(order))
      refuse(c, "{} is given; rows of {} have none: leave it out, or ask for {} (DispatchInput::row_order)",
             output.name, to_string(order), to_string(output.orders));
}

// Whether outputs are refused that do not hold the worst case. Padded rows lie at their stride, whatever comes.
bool needs_worst_case(const CheckContext& c, RowOrder order, Overflow overflow) {
  return order == RowOrder::padded || (!c.learns_counts && overflow == Overflow::refused);
}

// Group 0 begins at row 0, and combine reads all of it.
void require_shared_rows(const CheckContext& c, std::int64_t capacity) {
  if (capacity < c.shared_rows)
    refuse(c,
           "payload holds {} rows; row_capacity must be {} or more: the fused shared expert has a row for each of so "
           "many tokens of this rank, and they must fit",
           capacity, c.shared_rows);
}

// Payload and scales.
RowsOut check_row_bytes(const CheckContext& c, const DispatchOutput& out, const RowChoice& choice, Overflow overflow) {
  const RowLayout& layout = c.layout;
  const ConstTensor payload = or_empty(out.payload);
  require_given(c, "payload", payload);
  if (layout.payload_row_bytes == 2 * std::int64_t{layout.hidden} && payload.dtype == DType::bf16) {
    require_rows(c, "payload", payload, layout.hidden);
  } else {
    require_dtype(c, "payload", payload, {DType::u8});
    require_rows(c, "payload", payload, static_cast<int>(layout.payload_row_bytes));
  }
  require_contiguous(c, "payload", payload);
  require_aligned(c, "payload", payload, 16);
  const std::int64_t capacity = payload.shape[0];
  const std::int64_t least = layout.least_rows(choice.order, choice.expert_stride);
  if (needs_worst_case(c, choice.order, overflow) && capacity < least)
    refuse(c, "payload holds {} rows; the limit is row_capacity >= {} (RowLayout::{})", capacity, least,
           choice.order == RowOrder::by_expert ? "min_row_capacity" : "least_rows");
  if (overflow != Overflow::refused) require_shared_rows(c, capacity);

  RowsOut rows;
  rows.payload = static_cast<std::byte*>(out.payload.data);
  rows.row_bytes = static_cast<std::size_t>(layout.payload_row_bytes);
  rows.scales = {nullptr, ScaleLayout::none, 0, 0, capacity};
  if (layout.scale_layout != ScaleLayout::none && (out.scales || out.row_scales.rank == 0)) {
    require_array(c, "scales", or_empty(out.scales), {layout.scale_dtype},
                  layout.scales_shape(capacity, choice.order, choice.expert_stride));
    rows.scales = {static_cast<std::byte*>(out.scales.data), layout.scale_layout,
                   static_cast<int>(size_of(layout.scale_dtype)), layout.scales_per_row, capacity};
    rows.stores_scales = true;
  } else if (out.scales) {
    refuse(c, "scales is given ({}); the format {} has none", to_string(out.scales), c.options.format.name());
  }
  if (layout.has_global_scales) {
    require_array(c, "global_scales", or_empty(out.global_scales), {DType::f32, DType::bf16}, {capacity});
    rows.global_scales = GlobalScales::of(out.global_scales);
  } else if (out.global_scales) {
    refuse(c, "global_scales is given; rows have no scale of their own: make the exchange with dynamic_scales");
  }
  return rows;
}

// What every order has.
void check_src_info(const CheckContext& c, const DispatchOutput& out, RowsOut& rows) {
  if (is_given(out.src_info))
    require_array(c, "src_info", or_empty(out.src_info), {DType::i32}, {rows.scales.row_capacity, 2});
  rows.src_info = static_cast<std::int32_t*>(out.src_info.data);
}

// What by_expert, padded and in_place have alike.
void check_groups(const CheckContext& c, const DispatchOutput& out, RowsOut& rows) {
  if (is_given(out.row_offsets)) require_array(c, "row_offsets", out.row_offsets, {DType::u32}, {c.layout.groups + 1});
  if (is_given(out.expert_ids)) require_array(c, "expert_ids", out.expert_ids, {DType::i32}, {c.layout.groups});
  rows.row_offsets = static_cast<std::uint32_t*>(out.row_offsets.data);
  rows.expert_ids = static_cast<std::int32_t*>(out.expert_ids.data);
}

void check_scales_offsets(const CheckContext& c, const DispatchOutput& out, RowsOut& rows) {
  const bool has_scales = rows.scales.layout != ScaleLayout::none;
  if (c.layout.scale_layout == ScaleLayout::tiled && (has_scales || out.scales_offsets))
    require_array(c, "scales_offsets", out.scales_offsets, {DType::u32}, {c.layout.groups});
  else if (out.scales_offsets)
    refuse(c, "scales_offsets is given; only tiled scales have it, these are {}", to_string(c.layout.scale_layout));
  rows.scales_offsets = static_cast<std::uint32_t*>(out.scales_offsets.data);
}

void check_source_outputs(const CheckContext& c, const DispatchOutput& out, RowsOut& rows) {
  const std::int64_t capacity = rows.scales.row_capacity;
  require_given(c, "source_offsets", out.source_offsets);
  if (out.row_topk_ids)
    require_array(c, "row_topk_ids", out.row_topk_ids, {DType::i32, DType::i64}, {capacity, c.layout.top_k});
  if (out.row_topk_weights)
    require_array(c, "row_topk_weights", out.row_topk_weights, {DType::f32}, {capacity, c.layout.top_k});
  rows.row_topk_ids = out.row_topk_ids.data;
  rows.has_i64_ids = out.row_topk_ids.dtype == DType::i64;
  rows.row_topk_weights = static_cast<float*>(out.row_topk_weights.data);
}

// Slots have 31 bits.
RowsOut check_gather(const CheckContext& c, const DispatchOutput& out, Overflow overflow) {
  RowsOut rows;
  rows.scales.row_capacity = out.gather.rank == 0 ? 0 : out.gather.shape[0];
  require_array(c, "gather", or_empty(out.gather), {DType::i32}, {-1});
  if (needs_worst_case(c, RowOrder::in_place, overflow) && rows.scales.row_capacity < c.layout.min_row_capacity)
    refuse(c, "gather holds {} rows; the limit is {} or more (RowLayout::least_rows)", rows.scales.row_capacity,
           c.layout.min_row_capacity);
  if (2 * c.layout.expert_rows > INT32_MAX)
    refuse(c, "gather: {} slots are more than an i32 can name; use another row_order", 2 * c.layout.expert_rows);
  check_groups(c, out, rows);
  rows.gather = static_cast<std::int32_t*>(out.gather.data);
  return rows;
}

}  // namespace

RowsOut check_dispatch_output(const CheckContext& c, const DispatchOutput& out, const RowChoice& choice,
                              Overflow overflow) {
  refuse_outputs_of_other_orders(c, out, choice.order);
  if (!c.more_outputs) require_no_more_outputs(c, out, choice.order);
  const bool in_place = choice.order == RowOrder::in_place, by_source = choice.order == RowOrder::by_source;
  RowsOut rows = in_place ? check_gather(c, out, overflow) : check_row_bytes(c, out, choice, overflow);
  rows.order = choice.order;
  rows.expert_stride = static_cast<std::uint32_t>(choice.expert_stride);
  rows.row_capacity = rows.scales.row_capacity;
  rows.may_overflow = overflow != Overflow::refused;
  check_src_info(c, out, rows);
  if (by_source) check_source_outputs(c, out, rows);
  if (!in_place && !by_source) {
    check_groups(c, out, rows);
    check_scales_offsets(c, out, rows);
  }
  if (choice.order == RowOrder::padded) {
    require_given(c, "counts", out.counts);
    if (rows.scales.layout == ScaleLayout::transposed) rows.scales.row_capacity = choice.expert_stride;
  }
  check_more_outputs(c, out, rows);
  return rows;
}

void check_row_capacity(const CheckContext& c, const RowsOut& out, RowOrder order, std::int64_t rows) {
  if (order == RowOrder::padded || out.may_overflow || out.scales.row_capacity >= rows) return;
  refuse(c,
         "{} holds {} rows; {} came, so row_capacity must be {} or more (RowCounts::rows of wait_for_counts). Nothing "
         "was written: call dispatch_wait with larger outputs",
         order == RowOrder::in_place ? "gather" : "payload", out.scales.row_capacity, rows, rows);
}

}  // namespace ferry
