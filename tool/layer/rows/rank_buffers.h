// The memory that one rank of a layer hands to its exchange, and the way from a dispatched row back to float32.
#pragma once

#include <cstdint>
#include <vector>

#include "tool/io/bfloat16.h"
#include "tool/io/memory.h"
#include "tool/layer/base/layer_plan.h"
#include "tool/layer/rows/group_scales.h"
#include "tool/layer/rows/rank_rows.h"

namespace ferry::app {

class RankBuffers {
 public:
  static constexpr std::int64_t kMostDecoded = 512;  // rows at a time

  RankBuffers(const RowLayout& layout, const Shape& shape, RowOrder order);

  Bf16* expert_rows() const { return expert_rows_.as<Bf16>(); }  // [row_capacity, hidden]
  const float* decoded() const { return decoded_.as<float>(); }  // [kMostDecoded, hidden]
  std::int64_t row_capacity() const { return layout_.least_rows(order_); }
  const DispatchOutput& dispatch_output() const { return arrivals_; }
  RankRows rows() const;
  // After a dispatch, padding included.
  std::int64_t num_rows() const {
    return order_ == RowOrder::by_source ? source_offsets()[layout_.sources] : row_offsets()[layout_.groups];
  }

  // Rows of a group after a dispatch, without the padding behind them.
  TokenSpan rows_of_group(int group) const;
  // decoded() = the values of these rows, at most kMostDecoded of them.
  void decode(const AnyFormat& format, float input_scale, int group, const TokenSpan& rows);
  // Line `to` of decoded() = the values of a row.
  void decode_row(const AnyFormat& format, float input_scale, int group, std::int64_t row, std::int64_t to);

  // Of the scales at `base`, laid out as those of this rank's rows.
  GroupScales scales_of_group(int group, std::byte* base) const;
  std::span<const std::int32_t> row_topk_ids() const;  // by_source: of the rows that came, [rows, K]

  static std::uint64_t decoded_bytes(int hidden);

 private:
  void copy_scales(int group, std::int64_t row);

  const std::uint32_t* row_offsets() const { return arrivals_.row_offsets.as<std::uint32_t>(); }
  const std::uint32_t* source_offsets() const { return arrivals_.source_offsets.as<std::uint32_t>(); }
  const std::int32_t* src_info() const { return arrivals_.src_info.as<std::int32_t>(); }

  RowLayout layout_;
  RowOrder order_;
  std::vector<Pages> outputs_;  // of a dispatch
  DispatchOutput arrivals_;
  Pages expert_rows_;
  Pages decoded_;
  Pages one_payload_;  // of a row, aligned as decode wants it
  Pages one_scales_;
};

}  // namespace ferry::app
