// RowOps: the work on the bytes of rows, which each backend does in its own way. An ops object is small, and a step
// carries it as a parameter (step.h). PortableOps is the readable reference; cpu::HostOps has the vectors of the CPU,
// cuda::TeamOps those of a team of GPU threads. All give the same bytes.
//
//   copy_to_rows     one message to several rows of the grouped matmul's input
//   store_scales     a message's scales to the places of these rows. The tensor has a layout
//   zero_scales      scale 0 for a padding row
//   zero_scale_tail  tiles only: scale 0 for the rows past `end_row` of a group's last 128-row block
//   sum_rows         the weighted sum of rows, in the order of the rows (row_sum.h)
//   convert_row      a row as it is, to bf16, f16 or float32
//   write_sum        the weighted sum of rows as a result, which travels home
//   write_row        a row as a result
//   result_row       a result that has come, as a row of a sum. `index`: which of the results of a token, from 0
//   count_once       1 in one thread where any thread of the group found something, else 0
//
// All threads of the group call each of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/formats/row_sum.h"
#include "ferry/detail/layout/scale_layout.h"
#include "ferry/detail/protocol/contracts/token_lookup.h"

namespace ferry {

// The operations of receiving steps, in dispatch and in combine.
template <class O, class G>
concept RowOps = ThreadGroup<G> &&
    requires(const O& ops, const G& g, std::byte* to, const std::byte* from, std::size_t bytes,
             const std::uint32_t* rows, const ScaleTensor& tensor, const RowStarts& starts, const LocalRows& local,
             const SumRow* sum_of, const RowSink& sink) {
  { ops.copy_to_rows(g, to, bytes, rows, int{}, from, bytes) } -> std::same_as<void>;
  { ops.store_scales(g, tensor, from, starts, int{}, local) } -> std::same_as<void>;
  { ops.zero_scales(g, tensor, ScaleRow{}) } -> std::same_as<void>;
  { ops.zero_scale_tail(g, tensor, std::int64_t{}, std::int64_t{}, std::uint32_t{}) } -> std::same_as<void>;
  { ops.sum_rows(g, sum_of, int{}, int{}, sink) } -> std::same_as<void>;
  { ops.convert_row(g, *sum_of, int{}, to, DType::bf16) } -> std::same_as<void>;
};

// The operations of combine on results. They know how results travel (ExchangeOptions::result_format).
template <class O, class G>
concept ResultOps = ThreadGroup<G> &&
    requires(const O& ops, const G& g, const SumRow* rows, std::byte* to, const std::byte* from) {
  { ops.write_sum(g, rows, int{}, int{}, to) } -> std::same_as<void>;
  { ops.write_row(g, *rows, int{}, to) } -> std::same_as<void>;
  { ops.result_row(g, from, int{}, int{}, float{}) } -> std::same_as<SumRow>;
};

// The operations that sending steps need besides.
template <class O, class G>
concept SendOps = ThreadGroup<G> && requires(const O& ops, const G& g) {
  { ops.count_once(g, int{}) } -> std::same_as<int>;
};

// For any group of at most kWidth threads.
struct PortableOps {
  template <ThreadGroup G>
  FERRY_HD void copy_to_rows(const G& g, std::byte* rows, std::size_t row_bytes, const std::uint32_t* row, int count,
                             const std::byte* from, std::size_t bytes) const {
    for (int i = 0; i < count; ++i) copy_bytes(g, rows + static_cast<std::size_t>(row[i]) * row_bytes, from, bytes);
  }
  template <ThreadGroup G>
  FERRY_HD void store_scales(const G& g, const ScaleTensor& tensor, const std::byte* scales, const RowStarts& starts,
                             int shared_groups, const LocalRows& to) const {
    for (int i = 0; i < to.count; ++i) {
      const int group = to.local[i] + shared_groups;
      ferry::store_scales(g, tensor, scales, ScaleRow{to.row[i], starts.group[group], starts.tiles[group]});
    }
  }
  template <ThreadGroup G>
  FERRY_HD void zero_scales(const G& g, const ScaleTensor& tensor, const ScaleRow& at) const {
    ferry::zero_scales(g, tensor, at);
  }
  template <ThreadGroup G>
  FERRY_HD void zero_scale_tail(const G& g, const ScaleTensor& tensor, std::int64_t first_row, std::int64_t end_row,
                                std::uint32_t scales_offset) const {
    ferry::zero_scale_tail(g, tensor, first_row, end_row, scales_offset);
  }
  template <ThreadGroup G>
  FERRY_HD void sum_rows(const G& g, const SumRow* rows, int count, int hidden, const RowSink& sink) const {
    ferry::sum_rows(g, rows, count, hidden, sink);
  }
  template <ThreadGroup G>
  FERRY_HD void convert_row(const G& g, const SumRow& row, int hidden, std::byte* to, DType dtype) const {
    ferry::convert_row(g, row, hidden, to, dtype);
  }
  // Results are bf16 rows.
  template <ThreadGroup G>
  FERRY_HD void write_sum(const G& g, const SumRow* rows, int count, int hidden, std::byte* to) const {
    sum_rows(g, rows, count, hidden, RowSink{to});
  }
  template <ThreadGroup G>
  FERRY_HD void write_row(const G& g, const SumRow& row, int hidden, std::byte* to) const {
    convert_row(g, row, hidden, to, DType::bf16);
  }
  template <ThreadGroup G>
  FERRY_HD SumRow result_row(const G&, const std::byte* result, int, int, float weight) const {
    return {result, weight, DType::bf16};
  }
  template <ThreadGroup G>
  FERRY_HD int count_once(const G& g, int found) const {
    const std::uint32_t any = g.template max_over<G::kWidth>(found != 0 ? 1u : 0u);
    return any != 0 && g.thread() == 0 ? 1 : 0;
  }
};
static_assert(RowOps<PortableOps, SerialGroup> && ResultOps<PortableOps, SerialGroup> &&
              SendOps<PortableOps, SerialGroup>);

}  // namespace ferry
