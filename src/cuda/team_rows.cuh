// A team's own copies and sums of rows: 16-byte vectors, several loads ahead of their use. The same bytes as the
// generic ones of shared/.
#pragma once

#include <cstdint>

#include "cuda/kernel_params.h"
#include "cuda/team_group.cuh"
#include "shared/copy.h"
#include "shared/row_sum.h"

namespace ferry::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Into the L2 cache, by as many threads as there are lines.
__device__ inline void look_ahead(const TeamGroup& g, const std::byte* from, std::int64_t bytes) {
  constexpr int kLine = 128;
  for (std::int64_t at = static_cast<std::int64_t>(g.thread()) * kLine; at < bytes; at += g.size() * kLine)
    ptx::prefetch_to_l2(from + at);
}

// Reads the message once. Payload rows are 16-byte aligned where a row is a multiple of 16 bytes.
__device__ inline void copy_to_rows(const TeamGroup& g, std::byte* rows, std::size_t row_bytes,
                                    const std::uint32_t* row, int count, const std::byte* from, std::size_t bytes) {
  if (row_bytes % sizeof(uint4) != 0 || bytes % sizeof(uint4) != 0) {
    for (int i = 0; i < count; ++i) copy_bytes(g, rows + static_cast<std::size_t>(row[i]) * row_bytes, from, bytes);
    return;
  }
  const auto vectors = static_cast<int>(bytes / sizeof(uint4));
  for (int v = g.thread(); v < vectors; v += g.size()) {
    const uint4 value = reinterpret_cast<const uint4*>(from)[v];
    for (int i = 0; i < count; ++i)
      reinterpret_cast<uint4*>(rows + static_cast<std::size_t>(row[i]) * row_bytes)[v] = value;
  }
}

__device__ inline int once_in(const TeamGroup& g, int found) { return g.any(found != 0) && g.thread() == 0 ? 1 : 0; }

// Eight columns of a row that starts at a multiple of 16 bytes, as they are in memory: kept so until they are added.
struct EightColumns {
  uint4 low;
  uint4 high;  // float32 rows only
};
__device__ inline EightColumns load_eight(const SumRow& row, int column) {
  const auto* from = reinterpret_cast<const uint4*>(row.data + static_cast<std::size_t>(column) * (row.wide ? 4 : 2));
  return {from[0], row.wide ? from[1] : uint4{}};
}
__device__ inline void add_eight(const EightColumns& loaded, float weight, bool wide, float (&sum)[8]) {
  const std::uint32_t low[4] = {loaded.low.x, loaded.low.y, loaded.low.z, loaded.low.w};
  const std::uint32_t high[4] = {loaded.high.x, loaded.high.y, loaded.high.z, loaded.high.w};
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const std::uint32_t narrow = c % 2 == 0 ? low[c / 2] << 16 : low[c / 2] & 0xFFFF0000u;
    const std::uint32_t bits = !wide ? narrow : c < 4 ? low[c] : high[c - 4];
    sum[c] = __fadd_rn(sum[c], __fmul_rn(weight, __uint_as_float(bits)));
  }
}

__device__ inline void store_eight(const RowSink& sink, int column, const float (&sum)[8]) {
  if (sink.epilogue != nullptr) return sink.epilogue(sink.context, sink.token, column, sum, 8);
  if (sink.dtype == DType::f32) {
    auto* to = reinterpret_cast<float4*>(reinterpret_cast<float*>(sink.data) + column);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    return;
  }
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = static_cast<std::uint32_t>(float_to_bf16(sum[2 * i])) |
               static_cast<std::uint32_t>(float_to_bf16(sum[2 * i + 1])) << 16;
  *reinterpret_cast<uint4*>(reinterpret_cast<std::uint16_t*>(sink.data) + column) =
      make_uint4(words[0], words[1], words[2], words[3]);
}

// The rows of a sum, by number: from shared memory, or from the lanes of every warp.
struct ListedRows {
  const SumRow* rows;
  int count;
  __device__ SumRow at(int i) const { return rows[i]; }
};
struct LaneRows {
  const CombineArgs& in;
  KeptRow mine;
  unsigned lanes;  // that hold a row, in the order of the sum
  int count;
  __device__ SumRow at(int i) const {
    unsigned rest = lanes;
    for (int before = 0; before < i; ++before) rest &= rest - 1;
    const int lane = __ffs(static_cast<int>(rest)) - 1;
    return in.row(__shfl_sync(kAllLanes, mine.row, lane), __shfl_sync(kAllLanes, mine.weight, lane));
  }
};

// Adds rows [first, first + kAhead) at kVectors places, all loads on their way before the first is added. All threads
// of a warp come here, also those past the end of the row.
template <bool kWide, int kAhead, int kVectors, class Rows>
__device__ void add_rows(const Rows& rows, int first, int column, int stride, int hidden, float (&sum)[kVectors][8]) {
  SumRow row[kAhead];
  EightColumns loaded[kAhead][kVectors];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (first + i >= rows.count) continue;
    row[i] = rows.at(first + i);
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (column + v * stride < hidden) loaded[i][v] = load_eight(row[i], column + v * stride);
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (first + i >= rows.count) continue;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (column + v * stride < hidden) add_eight(loaded[i][v], row[i].weight, kWide && row[i].wide, sum[v]);
  }
}

template <bool kWide, int kAhead, int kVectors, class Rows>
__device__ void sum_columns(const TeamGroup& g, const Rows& rows, int hidden, const RowSink& sink) {
  const int stride = g.size() * 8;
  for (int begin = 0; begin < hidden; begin += kVectors * stride) {
    const int column = begin + g.thread() * 8;
    float sum[kVectors][8] = {};
    for (int first = 0; first < rows.count; first += kAhead)
      add_rows<kWide, kAhead>(rows, first, column, stride, hidden, sum);
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (column + v * stride < hidden) store_eight(sink, column + v * stride, sum[v]);
  }
}

// As ferry::sum_rows: the same operations in the same order.
__device__ inline void sum_rows(const TeamGroup& g, const SumRow* rows, int count, int hidden, const RowSink& sink) {
  bool wide = false;
  for (int i = 0; i < count; ++i) wide = wide || rows[i].wide;
  if (wide)
    sum_columns<true, 2, 1>(g, ListedRows{rows, count}, hidden, sink);
  else
    sum_columns<false, 4, 2>(g, ListedRows{rows, count}, hidden, sink);
}

// The rows that the lanes `local` of every warp hold.
__device__ inline void sum_lanes(const TeamGroup& g, const CombineArgs& in, KeptRow mine, unsigned local, int hidden,
                                 const RowSink& sink) {
  const LaneRows rows{in, mine, local, __popc(local)};
  if (in.wide)
    sum_columns<true, 2, 1>(g, rows, hidden, sink);
  else
    sum_columns<false, 4, 2>(g, rows, hidden, sink);
}

// A row as it is, rounded to bf16 where it is float32.
__device__ inline void copy_row(const TeamGroup& g, const SumRow& row, int hidden, std::byte* to) {
  if (row.wide) return convert_row(g, row, hidden, to, DType::bf16);
  copy_bytes(g, to, row.data, static_cast<std::size_t>(hidden) * 2);
}

}  // namespace ferry::cuda
