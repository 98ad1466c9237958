// The public list of a dispatch's outputs, and the sizes that it rests on.
#include "ferry/dispatch_output.h"

#include <fmt/core.h>

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

std::size_t TensorSpec::bytes() const {
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return bytes;
}

std::vector<TensorSpec> dispatch_outputs(const RowLayout& layout, std::int64_t row_capacity, RowOrder order,
                                         std::int64_t expert_stride) {
  const std::int64_t least = order == RowOrder::padded ? layout.least_rows(order, expert_stride) : 0;
  if (row_capacity < least)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("dispatch_outputs: row_capacity is {}; the limit is {} or more{}", row_capacity, least,
                            order == RowOrder::padded ? " (RowLayout::least_rows)" : ""));
  const bool by_source = order == RowOrder::by_source, in_place = order == RowOrder::in_place;
  const bool has_scales = layout.scale_layout != ScaleLayout::none && !in_place;
  const bool is_tiled = layout.scale_layout == ScaleLayout::tiled && !in_place;
  const bool is_bf16 =
      layout.scale_layout == ScaleLayout::none && layout.payload_row_bytes == 2 * std::int64_t{layout.hidden};
  std::vector<TensorSpec> specs;
  if (!in_place)
    specs.push_back({"payload",
                     &DispatchOutput::payload,
                     is_bf16 ? DType::bf16 : DType::u8,
                     {row_capacity, is_bf16 ? layout.hidden : layout.payload_row_bytes},
                     16});
  if (has_scales)
    specs.push_back({"scales", &DispatchOutput::scales, layout.scale_dtype,
                     layout.scales_shape(row_capacity, order, expert_stride),
                     is_tiled ? 16 : size_of(layout.scale_dtype)});
  if (!by_source) {
    specs.push_back({"row_offsets", &DispatchOutput::row_offsets, DType::u32, {layout.groups + 1}, 4});
    specs.push_back({"expert_ids", &DispatchOutput::expert_ids, DType::i32, {layout.groups}, 4});
  }
  specs.push_back({"src_info", &DispatchOutput::src_info, DType::i32, {row_capacity, 2}, 4});
  if (is_tiled && !by_source)
    specs.push_back({"scales_offsets", &DispatchOutput::scales_offsets, DType::u32, {layout.groups}, 4});
  if (by_source || order == RowOrder::padded)
    specs.push_back({"counts", &DispatchOutput::counts, DType::i32, {layout.groups}, 4});
  if (by_source) {
    specs.push_back({"row_topk_ids", &DispatchOutput::row_topk_ids, DType::i32, {row_capacity, layout.top_k}, 4});
    specs.push_back(
        {"row_topk_weights", &DispatchOutput::row_topk_weights, DType::f32, {row_capacity, layout.top_k}, 4});
    specs.push_back({"source_offsets", &DispatchOutput::source_offsets, DType::u32, {layout.sources + 1}, 4});
  }
  if (in_place) specs.push_back({"gather", &DispatchOutput::gather, DType::i32, {row_capacity}, 4});
  return specs;
}

}  // namespace ferry
