// RankMemory: what one rank of these examples owns. The library allocates no output: its caller does, once, as
// ferry::dispatch_outputs lists them, and hands it views.
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
        results_(size(capacity_ * layout_.hidden)) {
    for (const ferry::TensorSpec& spec : ferry::dispatch_outputs(layout_, capacity_))
      arrivals_.*spec.field = {memory_.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
  }

  const ferry::DispatchOutput& arrivals() const { return arrivals_; }

  ferry::CombineInput results() const {
    ferry::CombineInput in;
    in.rows = {results_.data(), ferry::DType::f32, {capacity_, layout_.hidden}};
    in.src_info = arrivals_.src_info;
    return in;
  }

  // Calls work(group, row) for each row that a token arrived in; padding rows are left out.
  template <class Work>
  void for_each_row(const Work& work) const {
    const auto* row_offsets = arrivals_.row_offsets.as<std::uint32_t>();
    for (int group = 0; group < layout_.groups; ++group)
      for (std::uint32_t row = row_offsets[group]; row < row_offsets[group + 1]; ++row)
        if (arrivals_.src_info.as<std::int32_t>()[2 * row] >= 0) work(group, row);
  }

  // The values of an arrived row. For bf16 and for formats that keep the scales of a row side by side.
  std::vector<float> values(std::uint32_t row) const {
    std::vector<float> values(size(layout_.hidden));
    const std::size_t scale_bytes = size(layout_.scales_per_row) * ferry::size_of(layout_.scale_dtype);
    format_.decode(ferry::SerialGroup{}, arrivals_.payload.as<std::byte>() + row * size(layout_.payload_row_bytes),
                   arrivals_.scales.as<std::byte>() + row * scale_bytes, layout_.hidden, 1.0f, values.data());
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
  std::vector<std::vector<std::byte>> memory_;  // of each output of a dispatch
  ferry::DispatchOutput arrivals_;
  std::vector<float> results_;  // [capacity, hidden]: the experts' output
};
