// OneTextOps: TeamOps whose sums are one function, for all groups of a kernel. Small rounds are bound by the
// instruction cache: a block that has sent results finds the text of its own sums there (log: One text for both sums).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

// For thread `thread` of `size`. With four vectors at once the callers have too few registers, and what they keep on
// the stack costs more than they gain.
__device__ __noinline__ inline void sum_stored_rows(int thread, int size, const SumRow* rows, int count, int hidden,
                                                    std::byte* to, DType dtype) {
  RowSink sink{to};
  sink.dtype = dtype;
  const StoredColumns columns{sink};
  sum_rows_ahead<false, 3>(WarpwiseTeam::of_thread(thread, size), rows, count, hidden, columns);
}

struct OneTextOps : TeamOps {
  __device__ static OneTextOps of_block(std::uint32_t*) { return {}; }
  // Sums for an epilogue have the epilogue compiled into them.
  template <ThreadGroup G>
  __device__ void sum_rows(const G& g, const SumRow* rows, int count, int hidden, const RowSink& sink) const {
    if (sink.epilogue != nullptr) return TeamOps::sum_rows(g, rows, count, hidden, sink);
    sum_stored_rows(g.thread(), g.size(), rows, count, hidden, sink.data, sink.dtype);
  }
  template <ThreadGroup G>
  __device__ void write_sum(const G& g, const SumRow* rows, int count, int hidden, std::byte* to) const {
    sum_rows(g, rows, count, hidden, RowSink{to});
  }
};
static_assert(RowOps<OneTextOps, SyncedTeam> && RowOps<OneTextOps, WarpwiseTeam> && SendOps<OneTextOps, SyncedTeam>);
static_assert(ResultOps<OneTextOps, SyncedTeam> && ResultOps<OneTextOps, WarpwiseTeam>);

}  // namespace ferry::cuda
