// HostOps: the work on rows with the vectors of this machine, past the cache where the group says so. The same bytes as
// PortableOps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/fabric/host_group.h"
#include "ferry/detail/formats/global_scales.h"
#include "ferry/detail/protocol/contracts/row_ops.h"

namespace ferry::cpu {

// All but how results travel.
struct HostRowOps {
  // Where rows have a scale each (ExchangeOptions::dynamic_scales): where it goes, and where it is in a message.
  GlobalScales global_scales{};
  std::size_t global_scale_at = 0;

  void copy_to_rows(const HostGroup& g, std::byte* rows, std::size_t row_bytes, const std::uint32_t* row, int count,
                    const std::byte* from, std::size_t bytes) const;
  void store_scales(const HostGroup& g, const ScaleTensor& tensor, const std::byte* scales, const RowStarts& starts,
                    int shared_groups, const LocalRows& to) const;
  void zero_scales(const HostGroup& g, const ScaleTensor& tensor, const ScaleRow& at) const;
  // Zeroes the whole last block of 128 rows at once, so it must come before the group's rows.
  void zero_scale_tail(const HostGroup& g, const ScaleTensor& tensor, std::int64_t first_row, std::int64_t end_row,
                       std::uint32_t scales_offset) const;
  void sum_rows(const HostGroup& g, const SumRow* rows, int count, int hidden, const RowSink& sink) const;
  void convert_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to, DType dtype) const;
  int count_once(const HostGroup&, int found) const { return found; }

  // A row's scales, in runs that lie together; scale 0 where `scales` is null.
  static void store_row_scales(const HostGroup& g, const ScaleTensor& tensor, const std::byte* scales,
                               const ScaleRow& at);
};
static_assert(RowOps<HostRowOps, HostGroup>);

// Results travel as bf16 rows.
struct HostOps : HostRowOps {
  void write_sum(const HostGroup& g, const SumRow* rows, int count, int hidden, std::byte* to) const {
    sum_rows(g, rows, count, hidden, RowSink{to});
  }
  void write_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to) const {
    convert_row(g, row, hidden, to, DType::bf16);
  }
  SumRow result_row(const HostGroup&, const std::byte* result, int, int, float weight) const {
    return {result, weight, DType::bf16};
  }
};
static_assert(RowOps<HostOps, HostGroup> && ResultOps<HostOps, HostGroup> && SendOps<HostOps, HostGroup>);

}  // namespace ferry::cpu
