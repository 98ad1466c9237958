// Sizes are those of dispatch_outputs; the worst case is reserved, and only what arrives takes memory.
#include "tool/layer/rows/rank_buffers.h"

#include <algorithm>
#include <cstring>

#include "tool/layer/base/area.h"

namespace ferry::app {

RankBuffers::RankBuffers(const RowLayout& layout, const Shape& shape, RowOrder order)
    : layout_(layout),
      order_(order),
      expert_rows_(area(layout.least_rows(order), shape.hidden * 2)),
      decoded_(decoded_bytes(shape.hidden)),
      one_payload_(static_cast<std::size_t>(layout.payload_row_bytes)),
      one_scales_(area(layout.scales_per_row, static_cast<std::int64_t>(size_of(layout.scale_dtype)))) {
  for (const TensorSpec& spec : dispatch_outputs(layout, row_capacity(), order))
    arrivals_.*spec.field = {outputs_.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
}

std::uint64_t RankBuffers::decoded_bytes(int hidden) { return area(kMostDecoded, hidden) * sizeof(float); }

RankRows RankBuffers::rows() const {
  const auto groups = static_cast<std::size_t>(layout_.groups);
  return {&layout_,
          layout_.min_row_capacity,
          arrivals_.payload.as<std::byte>(),
          arrivals_.scales.as<std::byte>(),
          src_info(),
          {row_offsets(), groups + 1},
          {arrivals_.expert_ids.as<std::int32_t>(), groups},
          {arrivals_.scales_offsets.as<std::uint32_t>(), arrivals_.scales_offsets ? groups : 0}};
}

TokenSpan RankBuffers::rows_of_group(int group) const {
  const std::int64_t begin = row_offsets()[group];
  if (order_ == RowOrder::padded) return {begin, arrivals_.counts.as<std::int32_t>()[group]};
  std::int64_t end = row_offsets()[group + 1];
  while (end > begin && src_info()[2 * (end - 1)] < 0) --end;
  return {begin, end - begin};
}

void RankBuffers::decode(const AnyFormat& format, float input_scale, int group, const TokenSpan& rows) {
  for (std::int64_t i = 0; i < rows.count; ++i) decode_row(format, input_scale, group, rows.begin + i, i);
}

void RankBuffers::decode_row(const AnyFormat& format, float input_scale, int group, std::int64_t row, std::int64_t to) {
  std::memcpy(one_payload_.data(), arrivals_.payload.as<std::byte>() + area(row, layout_.payload_row_bytes),
              one_payload_.bytes());
  copy_scales(group, row);
  format.decode(SerialGroup{}, one_payload_.data(), one_scales_.data(), layout_.hidden, input_scale,
                decoded_.as<float>() + to * layout_.hidden);
}

void RankBuffers::copy_scales(int group, std::int64_t row) {
  const GroupScales scales = scales_of_group(group, arrivals_.scales.as<std::byte>());
  const int bytes = scales.tensor.scale_bytes;
  for (int column = 0; column < layout_.scales_per_row; ++column)
    std::memcpy(one_scales_.data() + column * bytes,
                scales.tensor.base + scale_index(scales.tensor, scales.at(row), column) * bytes,
                static_cast<std::size_t>(bytes));
}

GroupScales RankBuffers::scales_of_group(int group, std::byte* base) const {
  const int bytes = static_cast<int>(size_of(layout_.scale_dtype));
  GroupScales scales{{base, layout_.scale_layout, bytes, layout_.scales_per_row, row_capacity()}, 0, {}};
  scales.first.first_row = order_ == RowOrder::by_source ? 0 : row_offsets()[group];
  if (arrivals_.scales_offsets)
    scales.first.scales_offset =
        arrivals_.scales_offsets.as<std::uint32_t>()[order_ == RowOrder::by_source ? 0 : group];
  if (order_ == RowOrder::padded && layout_.scale_layout == ScaleLayout::transposed) {  // a tensor for each expert
    scales.tensor.row_capacity = layout_.expert_rows;
    scales.tensor.base += area(scales.first.first_row, std::int64_t{layout_.scales_per_row} * bytes);
    scales.skipped = scales.first.first_row;
  }
  return scales;
}

std::span<const std::int32_t> RankBuffers::row_topk_ids() const {
  return {arrivals_.row_topk_ids.as<std::int32_t>(), area(num_rows(), layout_.top_k)};
}

}  // namespace ferry::app
