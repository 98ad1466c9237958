// Checks of the outputs of a dispatch that may be left out (WorldCapabilities::more_outputs).
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "exchange/checks/refuse.h"
#include "exchange/checks/tensor_checks.h"

namespace ferry {
namespace {

// The outputs that OutputList::all adds to OutputList::usual, without handles, and the orders where they are usual.
struct MoreOutput {
  const char* name;
  Tensor DispatchOutput::*field;
  RowOrders usual;
};
constexpr MoreOutput kMoreOutputs[] = {
    {"counts", &DispatchOutput::counts, {RowOrder::by_source, RowOrder::padded}},
    {"source_offsets", &DispatchOutput::source_offsets, {RowOrder::by_source}},
    {"source_starts", &DispatchOutput::source_starts, {}},
    {"row_weights", &DispatchOutput::row_weights, {}},
    {"row_sources", &DispatchOutput::row_sources, {}},
    {"messages", &DispatchOutput::messages, {}},
    {"row_scales", &DispatchOutput::row_scales, {}},
    {"overflow", &DispatchOutput::overflow, {}},
    {"cumulative_counts", &DispatchOutput::cumulative_counts, {}},
    {"waited_ns", &DispatchOutput::waited_ns, {}},
};

// An array that may be left out: null then.
template <class T>
T* check_optional(const CheckContext& c, const char* name, const Tensor& tensor, DType dtype,
                  const std::vector<std::int64_t>& shape) {
  if (!is_given(tensor)) return nullptr;
  require_array(c, name, or_empty(tensor), {dtype}, shape);
  return static_cast<T*>(tensor.data);
}

// Each axis steps over all elements of the axes with smaller strides.
void require_no_overlap(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  std::vector<int> axes;
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (tensor.shape[axis] > 1) axes.push_back(axis);
  std::sort(axes.begin(), axes.end(), [&](int a, int b) { return tensor.strides[a] < tensor.strides[b]; });
  std::int64_t least = 1;
  for (const int axis : axes) {
    if (tensor.strides[axis] < least)
      refuse(c, "{} has a stride of {} elements on axis {}; the limit is {} or more: its elements would overlap", name,
             tensor.strides[axis], axis, least);
    least = tensor.strides[axis] * tensor.shape[axis];
  }
}

// Scales of one byte that are powers of two: those of the library's formats, but nvfp4's.
bool has_power_of_two_scales(const AnyFormat& format) {
  const auto formats = all_formats();
  return format.scale_bytes() == 1 && format.name() != std::string_view("nvfp4") &&
         std::find(formats.begin(), formats.end(), format) != formats.end();
}

// How the scales are written, from their dtype.
RowScales::As form_of(const CheckContext& c, const ConstTensor& scales) {
  const DType own = c.layout.scale_dtype;
  if (scales.dtype == own) return RowScales::As::they_are;
  if (scales.dtype == DType::f32 && has_power_of_two_scales(c.options.format)) return RowScales::As::numbers;
  if (scales.dtype == DType::i32 && own == DType::u8) return RowScales::As::groups_of_four;
  refuse(c, "row_scales has dtype {}; of {} it must be {}{}{}", to_string(scales.dtype), c.options.format.name(),
         to_string(own), own == DType::u8 ? ", i32 (groups of four)" : "",
         has_power_of_two_scales(c.options.format) ? ", f32" : "");
}

RowScales check_row_scales(const CheckContext& c, const DispatchOutput& out, const RowsOut& rows) {
  if (!is_given(out.row_scales)) return {};
  const RowLayout& layout = c.layout;
  if (layout.scale_layout == ScaleLayout::none)
    refuse(c, "row_scales is given ({}); the format {} has none", to_string(out.row_scales), c.options.format.name());
  const ConstTensor scales = or_empty(out.row_scales);
  require_given(c, "row_scales", scales);
  RowScales to;
  to.as = form_of(c, scales);
  to.count = layout.scales_per_row;
  to.scale_bytes = c.options.format.scale_bytes();
  const std::int64_t columns = to.as == RowScales::As::groups_of_four ? (to.count + 3) / 4 : to.count;
  const bool has_groups = scales.rank == 3 && rows.order == RowOrder::padded;
  if (has_groups)
    require_shape(c, "row_scales", scales, {layout.groups, rows.expert_stride, columns});
  else
    require_shape(c, "row_scales", scales, {rows.row_capacity, columns});
  require_aligned(c, "row_scales", scales, size_of(scales.dtype));
  require_no_overlap(c, "row_scales", scales);
  const auto bytes = static_cast<std::int64_t>(size_of(scales.dtype));
  to.data = static_cast<std::byte*>(const_cast<void*>(scales.data));
  to.group_rows = has_groups ? rows.expert_stride : 0;
  to.group_stride = has_groups ? scales.strides[0] * bytes : 0;
  to.row_stride = scales.strides[has_groups ? 1 : 0] * bytes;
  to.column_stride = scales.strides[has_groups ? 2 : 1] * bytes;
  return to;
}

void check_messages(const CheckContext& c, const DispatchOutput& out, RowsOut& rows) {
  if (!is_given(out.messages)) return;
  rows.messages = check_optional<std::int32_t>(c, "messages", out.messages, DType::i32, {-1, 2 + c.layout.top_k});
  rows.message_capacity = out.messages.shape[0];
  const std::int64_t most = std::min(rows.row_capacity, c.layout.expert_rows);
  if (!rows.may_overflow && rows.message_capacity < most)
    refuse(c, "messages holds {}; the limit is {} or more: a message for each row, at most R * T",
           rows.message_capacity, most);
}

}  // namespace

void require_no_more_outputs(const CheckContext& c, const DispatchOutput& out, RowOrder order) {
  const auto refuse_unsupported = [&](const char* name) {
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: {} is given; exchanges of this world do not write it{} yet: leave it out", c.rank,
                            name, fmt::format(" for rows {}", to_string(order))));
  };
  for (const MoreOutput& output : kMoreOutputs)
    if ((out.*output.field).rank != 0 && !output.usual.has(order)) refuse_unsupported(output.name);
  if (out.zero_padding) refuse_unsupported("zero_padding");
}

void check_more_outputs(const CheckContext& c, const DispatchOutput& out, RowsOut& rows) {
  const std::int64_t groups = c.layout.groups, sources = c.layout.sources, capacity = rows.row_capacity;
  rows.counts = check_optional<std::int32_t>(c, "counts", out.counts, DType::i32, {groups});
  rows.source_offsets =
      check_optional<std::uint32_t>(c, "source_offsets", out.source_offsets, DType::u32, {sources + 1});
  rows.source_starts =
      check_optional<std::int32_t>(c, "source_starts", out.source_starts, DType::i32, {groups, sources});
  rows.row_weights = check_optional<float>(c, "row_weights", out.row_weights, DType::f32, {capacity});
  rows.row_sources = check_optional<std::int32_t>(c, "row_sources", out.row_sources, DType::i32, {capacity});
  check_messages(c, out, rows);
  rows.row_scales = check_row_scales(c, out, rows);
  rows.stores_scales = rows.stores_scales || rows.row_scales.data != nullptr;
  rows.overflow = check_optional<std::int32_t>(c, "overflow", out.overflow, DType::i32, {1});
  rows.cumulative_counts =
      check_optional<std::int32_t>(c, "cumulative_counts", out.cumulative_counts, DType::i32, {groups});
  rows.waited_ns = check_optional<std::int64_t>(c, "waited_ns", out.waited_ns, DType::i64, {sources});
  rows.zeroes_padding = out.zero_padding;
  if (out.zero_padding && rows.order == RowOrder::in_place)
    refuse(c, "zero_padding is given; rows in_place are not copied, so none of them is padding: leave it out");
}

}  // namespace ferry
