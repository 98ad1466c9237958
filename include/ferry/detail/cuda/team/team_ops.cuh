// TeamOps: RowOps by a team of threads: 16-byte vectors, several loads in flight. PortableOps makes the same bytes.
#pragma once

#include <concepts>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/cuda/team/row_pipeline.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/formats/ptx_numbers.cuh"
#include "ferry/detail/formats/row_sum.h"
#include "ferry/detail/layout/scale_layout.h"
#include "ferry/detail/protocol/contracts/row_ops.h"
#include "ferry/detail/protocol/contracts/work_share.h"

namespace ferry::cuda {

// Teams of `threads` threads of the blocks. A team may span several blocks. Consecutive teams are of different blocks,
// so that few tokens are spread over many blocks.
__device__ inline FixedShare teams_of(int threads, FixedShare block) {
  const int shift = log2_of(threads);
  if (threads > kThreads) {
    const int span = shift - log2_of(kThreads);
    return {block.index >> span, block.count >> span};  // left-over blocks are in no team
  }
  return {(static_cast<int>(threadIdx.x) >> shift) * block.count + block.index, (kThreads >> shift) * block.count};
}

// All threads of a grid of blocks of kThreads.
__device__ inline FixedShare threads_of_grid() {
  return {static_cast<int>(blockIdx.x * kThreads + threadIdx.x), static_cast<int>(gridDim.x) * kThreads};
}

// Between loads and what uses them. Where registers are short the compiler moves a load below the first addition, and
// then it waits for memory once more (log: A load that waits for another). All lanes of a warp call it.
__device__ inline void keep_loads_ahead() { __syncwarp(); }

// Prefetches into the L2 cache, a thread for each line.
template <ThreadGroup G>
__device__ void prefetch_row(const G& g, const std::byte* from, std::int64_t bytes) {
  constexpr int kLine = 128;
  for (std::int64_t at = static_cast<std::int64_t>(g.thread()) * kLine; at < bytes; at += g.size() * kLine)
    ptx::prefetch_to_l2(from + at);
}

// Reads the message once. Payload rows are 16-byte aligned if a row is a multiple of 16 bytes.
template <ThreadGroup G>
__device__ void copy_vectors_to_rows(const G& g, std::byte* rows, std::size_t row_bytes, const std::uint32_t* row,
                                     int count, const std::byte* from, std::size_t bytes) {
  if (row_bytes % sizeof(uint4) != 0 || bytes % sizeof(uint4) != 0)
    return PortableOps{}.copy_to_rows(g, rows, row_bytes, row, count, from, bytes);
  constexpr int kAhead = 4;  // vectors in flight before the first is stored
  const auto vectors = static_cast<int>(bytes / sizeof(uint4));
  for (int begin = g.thread(); begin < vectors; begin += kAhead * g.size()) {
    uint4 value[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
      value[a] = reinterpret_cast<const uint4*>(from)[min(begin + a * g.size(), vectors - 1)];
    for (int i = 0; i < count; ++i) {
      auto* to = reinterpret_cast<uint4*>(rows + static_cast<std::size_t>(row[i]) * row_bytes) + begin;
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (begin + a * g.size() < vectors) to[a * g.size()] = value[a];
    }
  }
}

// One scale, or four 1-byte scales; 0 past the end of the row.
__device__ inline std::uint32_t load_scales(const ScaleTensor& tensor, const std::byte* scales, int column, int step) {
  if (tensor.scale_bytes == 4)
    return column < tensor.scales_per_row ? reinterpret_cast<const std::uint32_t*>(scales)[column] : 0u;
  if (column + step <= tensor.scales_per_row && step == 4)
    return *reinterpret_cast<const std::uint32_t*>(scales + column);
  std::uint32_t value = 0;
#pragma unroll 1
  for (int i = 0; i < step; ++i)
    if (column + i < tensor.scales_per_row) value |= static_cast<std::uint32_t>(scales[column + i]) << 8 * i;
  return value;
}

// Each scale is read once. A tile has columns past the last scale: those are 0. Scales of 1 byte lie side by side in a
// tile, four at a time, as they do in a message.
template <ThreadGroup G>
__device__ void store_scales_of_rows(const G& g, const ScaleTensor& tensor, const std::byte* scales,
                                     const RowStarts& starts, int shared_groups, const LocalRows& to) {
  const bool tiled = tensor.layout == ScaleLayout::tiled;
  const int step = tiled && tensor.scale_bytes == 1 ? kScaleTileColumns : 1;
  const int columns = tiled ? tiled_scales_per_row(tensor.scales_per_row) : tensor.scales_per_row;
  // Starts with the last thread, since in a large team the first threads have the payload.
  for (int column = (g.size() - 1 - g.thread()) * step; column < columns; column += g.size() * step) {
    const std::uint32_t value = load_scales(tensor, scales, column, step);
    for (int i = 0; i < to.count; ++i) {
      const int group = to.local[i] + shared_groups;
      const std::int64_t index = scale_index(tensor, {to.row[i], starts.group[group], starts.tiles[group]}, column);
      if (tensor.scale_bytes * step == 4)
        *reinterpret_cast<std::uint32_t*>(tensor.base + index * tensor.scale_bytes) = value;
      else
        tensor.base[index] = static_cast<std::byte>(value);
    }
  }
}

// Tiles of 1-byte scales: four columns of a row are neighbours, and so are the rows r, r + 32, r + 64 and r + 96. A few
// tokens leave most of a tile empty, so a thread zeroes 16 bytes at a time.
template <ThreadGroup G>
__device__ void zero_tail_vectors(const G& g, const ScaleTensor& tensor, std::int64_t first_row, std::int64_t end_row,
                                  std::uint32_t scales_offset) {
  if (tensor.layout != ScaleLayout::tiled) return;
  if (tensor.scale_bytes != 1) return zero_scale_tail(g, tensor, first_row, end_row, scales_offset);
  const std::int64_t block = first_row + (end_row - first_row) / kScaleTileRows * kScaleTileRows;
  const auto filled = static_cast<int>(end_row - block);
  if (filled == 0) return;
  constexpr int kQuarter = kScaleTileRows / 4;
  const int vectors = tiled_scales_per_row(tensor.scales_per_row) / kScaleTileColumns * kQuarter;
#pragma unroll 4
  for (int i = g.thread(); i < vectors; i += g.size()) {
    const int row = i % kQuarter;
    const ScaleRow at{block + row, first_row, scales_offset};
    std::byte* to = tensor.base + scale_index(tensor, at, i / kQuarter * kScaleTileColumns);
    if (row >= filled) {
      *reinterpret_cast<uint4*>(to) = uint4{};
      continue;
    }
#pragma unroll 1
    for (int quarter = 1; quarter < 4; ++quarter)
      if (row + quarter * kQuarter >= filled) reinterpret_cast<std::uint32_t*>(to)[quarter] = 0;
  }
}

// Tells the compiler that rows are global memory, so it emits no generic loads.
__device__ inline uint4 load_vector(const std::byte* from) {
  __builtin_assume(__isGlobal(from));
  return *reinterpret_cast<const uint4*>(from);
}

// Eight columns of a row that starts at a multiple of 16 bytes. They stay as they are in memory until they are added.
// kMayBeF32: some rows are float32; else all are bf16. kRegisters: what a row's columns take until they are added.
template <bool kMayBeF32>
struct EightColumns {
  static constexpr int kRegisters = 8;
  uint4 low;
  uint4 high;  // float32 rows only
  __device__ void load(const SumRow& row, int column, int /*hidden*/) {
    const std::byte* from = row.data + static_cast<std::size_t>(column) * (row.is_f32() ? 4 : 2);
    low = load_vector(from);
    high = row.is_f32() ? load_vector(from + sizeof low) : uint4{};
  }
  __device__ std::uint32_t float_bits(int c, bool is_f32) const {
    const std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const std::uint32_t narrow = c % 2 == 0 ? words[c / 2] << 16 : words[c / 2] & 0xFFFF0000u;
    return is_f32 ? words[c] : narrow;
  }
};
template <>
struct EightColumns<false> {
  static constexpr int kRegisters = 4;
  uint4 low;
  __device__ void load(const SumRow& row, int column, int /*hidden*/) {
    low = load_vector(row.data + static_cast<std::size_t>(column) * 2);
  }
  __device__ std::uint32_t float_bits(int c, bool) const {
    const std::uint32_t words[4] = {low.x, low.y, low.z, low.w};
    return c % 2 == 0 ? words[c / 2] << 16 : words[c / 2] & 0xFFFF0000u;
  }
};

template <class Columns>
__device__ void add_columns(float (&sum)[8], float weight, const Columns& columns, bool is_f32) {
#pragma unroll
  for (int c = 0; c < 8; ++c)
    sum[c] = __fadd_rn(sum[c], __fmul_rn(weight, __uint_as_float(columns.float_bits(c, is_f32))));
}

__device__ inline void store_eight(const RowSink& sink, int column, const float (&sum)[8]) {
  if (sink.data == nullptr && sink.epilogue == nullptr) return;  // a warm-up (combine_receive.cuh)
  if (sink.epilogue != nullptr) {
    // Not `sum` itself: the compiler keeps an array whose address escapes in memory, and these in registers.
    const float values[8] = {sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]};
    return sink.epilogue(sink.context, sink.token, column, values, 8);
  }
  if (sink.dtype == DType::f32) {
    auto* to = reinterpret_cast<float4*>(reinterpret_cast<float*>(sink.data) + column);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    return;
  }
  *reinterpret_cast<uint4*>(reinterpret_cast<std::uint16_t*>(sink.data) + column) =
      make_uint4(ptx::two_bf16(sum[0], sum[1]), ptx::two_bf16(sum[2], sum[3]), ptx::two_bf16(sum[4], sum[5]),
                 ptx::two_bf16(sum[6], sum[7]));
}

// Where eight columns of a sum go. kTogether: all threads of a warp put theirs together, and are told which columns
// exist (encoded_ops.cuh); otherwise only columns that exist are put.
template <class T>
concept ColumnSink = std::same_as<decltype(T::kTogether), const bool> &&
    ((T::kTogether && requires(T & to, const float (&sum)[8]) { to.put(int{}, sum, bool{}); }) ||
     (!T::kTogether && requires(T & to, const float (&sum)[8]) { to.put(int{}, sum); }));

// A row in memory, or an epilogue.
struct StoredColumns {
  static constexpr bool kTogether = false;
  const RowSink& sink;
  __device__ void put(int column, const float (&sum)[8]) const { store_eight(sink, column, sum); }
};
static_assert(ColumnSink<const StoredColumns>);

// kVectors vectors of a row, of 8 columns each and a team's width apart. Vectors past the end of the row load its last
// columns and store nothing, so that no load waits for a branch. `Columns`: EightColumns, or the columns of results
// that come encoded (encoded_ops.cuh).
template <class Columns, int kVectors>
struct VectorSums {
  int column[kVectors];
  float sum[kVectors][8] = {};

  // Adds the first `count` of kRows rows. Their loads are in flight together. If there are fewer, the last row is
  // loaded again: a load that waits for a branch costs more.
  template <int kRows>
  __device__ void add(const SumRow* rows, int count, int hidden) {
    Columns loaded[kRows][kVectors];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int v = 0; v < kVectors; ++v) loaded[i][v].load(rows[min(i, count - 1)], column[v], hidden);
    keep_loads_ahead();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i >= count) continue;
      const float weight = rows[i].weight;
      const bool is_f32 = rows[i].is_f32();
#pragma unroll
      for (int v = 0; v < kVectors; ++v) add_columns(sum[v], weight, loaded[i][v], is_f32);
    }
  }
};

template <class Columns, int kVectors, ColumnSink To>
__device__ void sum_vectors(const SumRow* rows, int count, int first_column, int stride, int hidden, To& to) {
  VectorSums<Columns, kVectors> sums;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) sums.column[v] = min(first_column + v * stride, hidden - 8);
  if constexpr (kVectors > 2 || Columns::kRegisters > 4) {
    int i = 0;
    for (; i + 2 <= count; i += 2) sums.template add<2>(rows + i, 2, hidden);
    if (i < count) sums.template add<1>(rows + i, 1, hidden);
  } else {
#pragma unroll 1
    for (int i = 0; i < count; i += 4) sums.template add<4>(rows + i, count - i, hidden);
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if constexpr (To::kTogether)
      to.put(first_column + v * stride, sums.sum[v], first_column + v * stride < hidden);
    else if (first_column + v * stride < hidden)
      to.put(first_column + v * stride, sums.sum[v]);
}

template <class Columns, int kVectors, ThreadGroup G, ColumnSink To>
__device__ void sum_columns(const G& g, const SumRow* rows, int count, int hidden, To& to) {
  const int stride = g.size() * 8;
  for (int begin = 0; begin < hidden;) {
    const int column = begin + g.thread() * 8;
    const auto has_left = [&](int vectors) { return begin + (vectors - 1) * stride < hidden; };
    // Four are summed as two and two. Three at once would leave one, which alone has few loads in flight.
    const bool has_four_left = kVectors == 3 && has_left(4) && !has_left(5);
    if (has_left(min(3, kVectors)) && !has_four_left) {
      sum_vectors<Columns, kVectors>(rows, count, column, stride, hidden, to);
      begin += kVectors * stride;
    } else if (kVectors > 2 && has_left(2)) {
      sum_vectors<Columns, 2>(rows, count, column, stride, hidden, to);
      begin += 2 * stride;
    } else {
      sum_vectors<Columns, 1>(rows, count, column, stride, hidden, to);
      begin += stride;
    }
  }
}

// Sums `count` bf16 rows.
template <ThreadGroup G, ColumnSink To>
__device__ void sum_rows_pipelined(const G& g, const SumRow* rows, int count, int hidden, To& to) {
  const int stride = g.size() * 8;
  const int column = g.thread() * 8;
  RowPipeline pipeline(g.pipeline());
  LoadOrder order{rows, count, hidden, stride, column, count > 0 ? 0 : hidden};
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) order.load_next(pipeline);
#pragma unroll 1
  for (int begin = 0; begin < hidden; begin += kStageVectors * stride) {
    float sum[kStageVectors][8] = {};
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      pipeline.await();
#pragma unroll
      for (int v = 0; v < kStageVectors; ++v)
        add_columns(sum[v], rows[i].weight, EightColumns<false>{pipeline.read(v)}, false);
      pipeline.release();
      order.load_next(pipeline);
    }
#pragma unroll
    for (int v = 0; v < kStageVectors; ++v)
      if constexpr (To::kTogether)
        to.put(begin + v * stride + column, sum[v], begin + v * stride + column < hidden);
      else if (begin + v * stride + column < hidden)
        to.put(begin + v * stride + column, sum[v]);
  }
}

// As ferry::sum_rows: the same operations in the same order. If any row is float32, the first or the last one is: all
// rows have one dtype except bias, which comes first, and that of a shared expert, which comes last.
// kPipelined: the group has a pipeline. Then nothing is compiled for bf16 rows that go through registers. Without it
// kVectors vectors of each such row are in flight at once.
template <bool kPipelined, int kVectors = 4, ThreadGroup G, ColumnSink To>
__device__ void sum_rows_ahead(const G& g, const SumRow* rows, int count, int hidden, To& to) {
  if (count > 0 && (rows[0].is_f32() || rows[count - 1].is_f32()))
    sum_columns<EightColumns<true>, 1>(g, rows, count, hidden, to);
  else if constexpr (kPipelined)
    sum_rows_pipelined(g, rows, count, hidden, to);
  else
    sum_columns<EightColumns<false>, kVectors>(g, rows, count, hidden, to);
}

// kPipelined: as in sum_rows_ahead.
template <bool kPipelined>
struct TeamOpsOf {
  static constexpr bool kIsPipelined = kPipelined;
  static constexpr bool kCopiesRows = false;  // a result that is one row leaves as it is (row_copies.cuh)
  // `words`: of shared memory, for each warp of the block. Only some encodings need them (encoded_ops.cuh).
  __device__ static TeamOpsOf of_block(std::uint32_t*) { return {}; }
  template <ThreadGroup G>
  __device__ void copy_to_rows(const G& g, std::byte* rows, std::size_t row_bytes, const std::uint32_t* row, int count,
                               const std::byte* from, std::size_t bytes) const {
    copy_vectors_to_rows(g, rows, row_bytes, row, count, from, bytes);
  }
  template <ThreadGroup G>
  __device__ void store_scales(const G& g, const ScaleTensor& tensor, const std::byte* scales, const RowStarts& starts,
                               int shared_groups, const LocalRows& to) const {
    store_scales_of_rows(g, tensor, scales, starts, shared_groups, to);
  }
  template <ThreadGroup G>
  __device__ void zero_scales(const G& g, const ScaleTensor& tensor, const ScaleRow& at) const {
    ferry::zero_scales(g, tensor, at);
  }
  template <ThreadGroup G>
  __device__ void zero_scale_tail(const G& g, const ScaleTensor& tensor, std::int64_t first_row, std::int64_t end_row,
                                  std::uint32_t scales_offset) const {
    zero_tail_vectors(g, tensor, first_row, end_row, scales_offset);
  }
  template <ThreadGroup G>
  __device__ void sum_rows(const G& g, const SumRow* rows, int count, int hidden, const RowSink& sink) const {
    const StoredColumns to{sink};
    sum_rows_ahead<kPipelined>(g, rows, count, hidden, to);
  }
  template <ThreadGroup G>
  __device__ void convert_row(const G& g, const SumRow& row, int hidden, std::byte* to, DType dtype) const {
    ferry::convert_row(g, row, hidden, to, dtype);
  }
  // Results are bf16 rows.
  template <ThreadGroup G>
  __device__ void write_sum(const G& g, const SumRow* rows, int count, int hidden, std::byte* to) const {
    sum_rows(g, rows, count, hidden, RowSink{to});
  }
  template <ThreadGroup G>
  __device__ void write_row(const G& g, const SumRow& row, int hidden, std::byte* to) const {
    if (row.is_f32()) return ferry::convert_row(g, row, hidden, to, DType::bf16);
    copy_bytes(g, to, row.data, static_cast<std::size_t>(hidden) * 2);
  }
  template <ThreadGroup G>
  __device__ SumRow result_row(const G&, const std::byte* result, int, int, float weight) const {
    return {result, weight, DType::bf16};
  }
  __device__ int count_once(const SyncedTeam& g, int found) const {
    return g.any(found != 0) && g.thread() == 0 ? 1 : 0;
  }
};
using TeamOps = TeamOpsOf<false>;
static_assert(RowOps<TeamOps, SyncedTeam> && RowOps<TeamOps, WarpwiseTeam> && SendOps<TeamOps, SyncedTeam>);
static_assert(ResultOps<TeamOps, SyncedTeam> && ResultOps<TeamOps, WarpwiseTeam>);

}  // namespace ferry::cuda
