// Sizes follow the exchange's RowLayout; the worst case is reserved, and only what arrives takes memory.
#include "tool/layer/rank_buffers.h"

#include <algorithm>
#include <cstring>

#include "ferry/detail/layout/scale_layout.h"

namespace ferry::app {
namespace {

std::size_t area(std::int64_t rows, std::int64_t bytes) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(bytes);
}

std::size_t volume(const std::vector<std::int64_t>& shape, DType dtype) {
  std::size_t bytes = shape.empty() ? 0 : size_of(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return bytes;
}

bool is_bf16(const RowLayout& layout) { return layout.scale_layout == ScaleLayout::none; }

}  // namespace

RankBuffers::RankBuffers(const RowLayout& layout, const Shape& shape)
    : layout_(layout),
      scales_shape_(layout.scales_shape(layout.min_row_capacity)),
      tokens_(area(shape.max_tokens, shape.hidden * 2)),
      payload_(area(layout.min_row_capacity, layout.payload_row_bytes)),
      scales_(volume(scales_shape_, layout.scale_dtype)),
      src_info_(area(layout.min_row_capacity, 8)),
      expert_rows_(area(layout.min_row_capacity, shape.hidden * 2)),
      decoded_(decoded_bytes(shape.hidden)),
      one_payload_(static_cast<std::size_t>(layout.payload_row_bytes)),
      one_scales_(area(layout.scales_per_row, static_cast<std::int64_t>(size_of(layout.scale_dtype)))),
      row_offsets_(static_cast<std::size_t>(layout.groups) + 1),
      expert_ids_(static_cast<std::size_t>(layout.groups)),
      scales_offsets_(static_cast<std::size_t>(layout.groups)) {}

std::uint64_t RankBuffers::decoded_bytes(int hidden) { return area(ExpertRunner::kMostRows, hidden) * sizeof(float); }

DispatchOutput RankBuffers::dispatch_output() {
  DispatchOutput out;
  const std::int64_t rows = layout_.min_row_capacity;
  out.payload = is_bf16(layout_) ? Tensor(payload_.data(), DType::bf16, {rows, layout_.hidden})
                                 : Tensor(payload_.data(), DType::u8, {rows, layout_.payload_row_bytes});
  if (!scales_shape_.empty()) {
    const auto& s = scales_shape_;
    out.scales = s.size() == 2 ? Tensor(scales_.data(), layout_.scale_dtype, {s[0], s[1]})
                               : Tensor(scales_.data(), layout_.scale_dtype, {s[0], s[1], s[2], s[3], s[4]});
  }
  out.row_offsets = Tensor(row_offsets_.data(), DType::u32, {layout_.groups + 1});
  out.expert_ids = Tensor(expert_ids_.data(), DType::i32, {layout_.groups});
  out.src_info = Tensor(src_info_.data(), DType::i32, {rows, 2});
  if (layout_.scale_layout == ScaleLayout::tiled)
    out.scales_offsets = Tensor(scales_offsets_.data(), DType::u32, {layout_.groups});
  return out;
}

RankRows RankBuffers::rows() {
  return {&layout_,
          layout_.min_row_capacity,
          payload_.data(),
          scales_.data(),
          src_info_.as<std::int32_t>(),
          &row_offsets_,
          &expert_ids_,
          &scales_offsets_};
}

TokenSpan RankBuffers::rows_of_group(int group) const {
  const auto index = static_cast<std::size_t>(group);
  const std::int64_t begin = row_offsets_[index];
  std::int64_t end = row_offsets_[index + 1];
  while (end > begin && src_info_.as<std::int32_t>()[2 * (end - 1)] < 0) --end;
  return {begin, end - begin};
}

void RankBuffers::decode(const AnyFormat& format, float input_scale, int group, const TokenSpan& rows) {
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::int64_t row = rows.begin + i;
    std::memcpy(one_payload_.data(), payload_.data() + area(row, layout_.payload_row_bytes), one_payload_.bytes());
    copy_scales(group, row);
    format.decode(SerialGroup{}, one_payload_.data(), one_scales_.data(), layout_.hidden, input_scale,
                  decoded_.as<float>() + i * layout_.hidden);
  }
}

void RankBuffers::copy_scales(int group, std::int64_t row) {
  const int bytes = static_cast<int>(size_of(layout_.scale_dtype));
  const ScalePlace place{scales_.data(), layout_.scale_layout, bytes, layout_.scales_per_row, layout_.min_row_capacity};
  const auto index = static_cast<std::size_t>(group);
  const ScaleRow at{row, row_offsets_[index], scales_offsets_[index]};
  for (int column = 0; column < layout_.scales_per_row; ++column)
    std::memcpy(one_scales_.data() + column * bytes, place.base + scale_index(place, at, column) * bytes,
                static_cast<std::size_t>(bytes));
}

}  // namespace ferry::app
