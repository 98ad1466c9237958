// RankMemory: what one rank of these examples owns. The library allocates no output: its caller does, once, in the
// sizes that the exchange's layout gives, and hands it views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ferry/ferry.h"

class RankMemory {
 public:
  explicit RankMemory(const ferry::Exchange& exchange)
      : format_(exchange.options().format),
        layout_(exchange.layout()),
        capacity_(layout_.min_row_capacity),
        payload_(size(capacity_ * layout_.payload_row_bytes)),
        row_offsets_(size(layout_.groups + 1)),
        expert_ids_(size(layout_.groups)),
        src_info_(size(capacity_ * 2)),
        scales_offsets_(size(layout_.groups)),
        results_(size(capacity_ * layout_.hidden)) {
    const ferry::Tensor scales(nullptr, layout_.scale_dtype, layout_.scales_shape(capacity_));
    scales_.resize(size(scales.elements()) * ferry::size_of(scales.dtype));  // empty for bf16, which has none
  }

  ferry::DispatchOutput arrivals() {
    ferry::DispatchOutput out;
    out.payload = {payload_.data(), ferry::DType::u8, {capacity_, layout_.payload_row_bytes}};
    if (!scales_.empty()) out.scales = {scales_.data(), layout_.scale_dtype, layout_.scales_shape(capacity_)};
    out.row_offsets = {row_offsets_.data(), ferry::DType::u32, {layout_.groups + 1}};
    out.expert_ids = {expert_ids_.data(), ferry::DType::i32, {layout_.groups}};
    out.src_info = {src_info_.data(), ferry::DType::i32, {capacity_, 2}};
    if (layout_.scale_layout == ferry::ScaleLayout::tiled)
      out.scales_offsets = {scales_offsets_.data(), ferry::DType::u32, {layout_.groups}};
    return out;
  }

  ferry::CombineInput results() const {
    ferry::CombineInput in;
    in.rows = {results_.data(), ferry::DType::f32, {capacity_, layout_.hidden}};
    in.src_info = {src_info_.data(), ferry::DType::i32, {capacity_, 2}};
    return in;
  }

  // Calls work(group, row) for each row that a token arrived in; padding rows are left out.
  template <class Work>
  void for_each_row(const Work& work) const {
    for (int group = 0; group < layout_.groups; ++group)
      for (std::uint32_t row = row_offsets_[size(group)]; row < row_offsets_[size(group) + 1]; ++row)
        if (src_info_[2 * row] >= 0) work(group, row);
  }

  // The values of an arrived row. For bf16 and for formats that keep the scales of a row side by side.
  std::vector<float> values(std::uint32_t row) const {
    std::vector<float> values(size(layout_.hidden));
    const std::size_t scale_bytes = size(layout_.scales_per_row) * ferry::size_of(layout_.scale_dtype);
    format_.decode(ferry::SerialGroup{}, payload_.data() + row * size(layout_.payload_row_bytes),
                   scales_.data() + row * scale_bytes, layout_.hidden, 1.0f, values.data());
    return values;
  }
  float* result(std::uint32_t row) { return results_.data() + row * size(layout_.hidden); }

  // Calls expert(group, values, result) for each of those rows: its values, and where its `hidden` results go.
  template <class Expert>
  void run_experts(const Expert& expert) {
    for_each_row([&](int group, std::uint32_t row) { expert(group, values(row), result(row)); });
  }

 private:
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  ferry::AnyFormat format_;
  ferry::RowLayout layout_;
  std::int64_t capacity_;
  std::vector<std::byte> payload_;
  std::vector<std::byte> scales_;
  std::vector<std::uint32_t> row_offsets_;
  std::vector<std::int32_t> expert_ids_;
  std::vector<std::int32_t> src_info_;
  std::vector<std::uint32_t> scales_offsets_;
  std::vector<float> results_;  // [capacity, hidden]: the experts' output
};
