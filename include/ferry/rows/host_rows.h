// Rows on the host: the values of an arrived row in any format and layout, and an owner of the memory that an exchange
// of CPU ranks fills.
//
//   ferry::HostRows rows(exchange);
//   exchange.dispatch(in, rows.arrivals());
//   rows.for_each_row([&](int group, std::int64_t row) {
//     rows.decode(row, values);                    // [hidden] float32
//     ...                                          // the group's expert; its results go to rows.result(row)
//   });
//   exchange.combine(rows.results(), out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ferry/exchange.h"

namespace ferry {

// Decodes row `row` of what a dispatch of this format and layout filled: `hidden` float32 values. Takes any layout of
// the scales (transposed, tiled, row-major) and any format, also a caller's own.
//   output       in host memory. It reads payload and scales; of tiled scales row_offsets and scales_offsets, too; with
//                dynamic_scales global_scales. The payload may start anywhere
//   input_scale  that of the dispatch (nvfp4); 1 with dynamic_scales
//   padding      such a row has no token (src_info is -1), and its values mean nothing
// Throws Error(invalid_argument) where
//   - the layout is of another format, or the row is not one of `output`;
//   - `values` has not `hidden` elements;
//   - a tensor that is read is not given, has another dtype or shape, is not contiguous, or lies on a GPU.
void decode_row(const AnyFormat& format, const RowLayout& layout, const DispatchOutput& output, std::int64_t row,
                std::span<float> values, float input_scale = 1.0f);

// Host memory for the rows of one rank: what a dispatch fills, and the experts' results. It is allocated once; a
// dispatch overwrites it. For CPU ranks, and for staged worlds of GPUs.
class HostRows {
 public:
  // For the most rows that a dispatch of the exchange can have, in this format (DispatchInput::format).
  explicit HostRows(const Exchange& exchange, int format = 0);
  // For `row_capacity` rows: RowLayout::min_row_capacity, or RowCounts::rows of one dispatch.
  HostRows(const AnyFormat& format, const RowLayout& layout, std::int64_t row_capacity);
  HostRows(HostRows&&) noexcept = default;
  HostRows& operator=(HostRows&&) noexcept = default;

  const DispatchOutput& arrivals() const { return arrivals_; }  // for dispatch
  CombineInput results() const;                                 // for combine: the results, and src_info as it came
  std::int64_t row_capacity() const { return capacity_; }

  // The first row of a group (local expert, in order), and the end of its rows, padding included.
  std::int64_t begin_row(int group) const;
  std::int64_t end_row(int group) const;
  // Whether a token came in that row; else it is padding.
  bool has_token(std::int64_t row) const;

  // The values of a row; as decode_row.
  void decode(std::int64_t row, std::span<float> values, float input_scale = 1.0f) const;
  std::vector<float> values(std::int64_t row, float input_scale = 1.0f) const;
  // Where the `hidden` float32 results of a row go. Results of padding are not read.
  float* result(std::int64_t row) { return results_.data() + row * layout_.hidden; }

  // Calls work(group, row) for each row with a token, in the order of the rows.
  template <class Work>
  void for_each_row(const Work& work) const {
    for (int group = 0; group < layout_.groups; ++group)
      for (std::int64_t row = begin_row(group); row < end_row(group); ++row)
        if (has_token(row)) work(group, row);
  }

 private:
  AnyFormat format_;
  RowLayout layout_;
  std::int64_t capacity_;
  std::vector<std::vector<std::byte>> memory_;  // of each output of a dispatch
  DispatchOutput arrivals_;
  std::vector<float> results_;  // [row_capacity, hidden]
};

}  // namespace ferry
