// EncodedOps: TeamOps whose results travel in a format other than bf16 (ExchangeOptions::result_format). A sender
// encodes a sum from the registers that it was made in; a receiver decodes a result as it adds it. No decoded row is
// ever in memory. cpu::EncodedResults makes the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ferry/detail/cuda/team/result_codec.cuh"
#include "ferry/detail/cuda/team/result_sums.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/formats/bf16.h"
#include "ferry/detail/formats/float_formats.h"
#include "ferry/detail/formats/row_scale.h"

namespace ferry::cuda {

// Encodes columns into the result at `to`.
template <class F, ThreadGroup G>
struct ResultColumns {
  static constexpr bool kTogether = true;
  const G& g;
  int hidden;
  float input_scale;
  std::byte* to;
  __device__ void put(int column, const float (&values)[8], bool exist) const {
    ResultCodec<F>::encode(g, values, column, exist, hidden, input_scale, to);
  }
};

// The bits of the largest magnitude of this thread's columns; above those of infinity where one is a NaN.
struct LargestColumn {
  static constexpr bool kTogether = true;
  std::uint32_t bits = 0;
  __device__ void put(int, const float (&values)[8], bool exist) {
    for (int i = 0; i < 8; ++i)
      bits = codec::larger(bits, exist ? codec::bits_of(values[i]) & codec::kMagnitudeMask : 0u);
  }
};
static_assert(ColumnSink<const ResultColumns<F16, SyncedTeam>> && ColumnSink<LargestColumn>);

// The same of this thread's columns of a bf16 row times its weight. It multiplies once, since rounding keeps the order
// of magnitudes. Where the weight is infinite, zeros count as such: nothing is finite then, whichever counts.
template <ThreadGroup G>
__device__ std::uint32_t largest_of_row(const G& g, const SumRow& row, int hidden) {
  constexpr int kVectors = 4;
  const int stride = g.size() * 8;
  std::uint32_t first = 0, second = 0;  // of each word; above the lower 16 bits, and above the lowest bit
#pragma unroll 1
  for (int column = g.thread() * 8; column < hidden; column += kVectors * stride) {
    EightColumns<false> loaded[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) loaded[v].load(row, min(column + v * stride, hidden - 8), hidden);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const std::uint32_t words[4] = {loaded[v].low.x, loaded[v].low.y, loaded[v].low.z, loaded[v].low.w};
      for (const std::uint32_t word : words) {
        second = codec::larger(second, word & codec::kMagnitudeMask);
        first = codec::larger(first, word << 17);
      }
    }
  }
  const std::uint32_t largest = codec::larger(first >> 1, second & 0xFFFF0000u);
  return codec::bits_of(__fmul_rn(row.weight, codec::float_of(largest))) & codec::kMagnitudeMask;
}

// Puts the columns of one row, several vectors of which are loaded together.
template <class Columns, ThreadGroup G, ColumnSink To>
__device__ void put_row(const G& g, const SumRow& row, int hidden, To& to) {
  constexpr int kVectors = 2;
  const int stride = g.size() * 8;
  for (int begin = 0; begin < hidden; begin += kVectors * stride) {
    Columns loaded[kVectors];
    const int column = begin + g.thread() * 8;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) loaded[v].load(row, min(column + v * stride, hidden - 8), hidden);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (begin + v * stride >= hidden) continue;
      float values[8];
      for (int c = 0; c < 8; ++c) values[c] = __uint_as_float(loaded[v].float_bits(c, row.is_f32()));
      to.put(column + v * stride, values, column + v * stride < hidden);
    }
  }
}

template <TokenFormat F, bool kPipelined = false>
struct EncodedOps : TeamOpsOf<kPipelined> {
  std::uint32_t* words = nullptr;  // of each warp of the block

  __device__ static EncodedOps of_block(std::uint32_t* words) {
    EncodedOps ops;
    ops.words = words;
    return ops;
  }

  template <ThreadGroup G>
  __device__ void sum_rows(const G& g, const SumRow* rows, int count, int hidden, const RowSink& sink) const {
    const StoredColumns to{sink};
    sum_results<F, EightColumns<true>>(g, rows, count, hidden, to);
  }
  template <ThreadGroup G>
  __device__ void convert_row(const G& g, const SumRow& row, int hidden, std::byte* to, DType dtype) const {
    if (row.dtype != DType::u8) return ferry::convert_row(g, row, hidden, to, dtype);
    for (int column = g.thread() * 8; column < hidden; column += g.size() * 8) {
      AnyColumns<F, EightColumns<true>> columns;
      columns.load(row, column, hidden);
      for (int c = 0; c < 8; ++c) store_value(to, dtype, column + c, columns.values[c]);
    }
  }

  template <ThreadGroup G>
  __device__ void write_sum(const G& g, const SumRow* rows, int count, int hidden, std::byte* to) const {
    const auto pass = [&](auto& columns) { sum_rows_ahead<kPipelined>(g, rows, count, hidden, columns); };
    encode(g, hidden, to, pass, count == 1 ? rows : nullptr);
  }
  // Not a sum of one row, which would lose the sign of a zero.
  template <ThreadGroup G>
  __device__ void write_row(const G& g, const SumRow& row, int hidden, std::byte* to) const {
    const auto pass = [&](auto& columns) { put_row<EightColumns<true>>(g, row, hidden, columns); };
    encode(g, hidden, to, pass, &row);
  }
  template <ThreadGroup G>
  __device__ SumRow result_row(const G&, const std::byte* result, int, int, float weight) const {
    return {result, weight, DType::u8};
  }

 protected:
  // `pass` puts all columns of the row, in steps that all threads of the group make together. A format with a scale for
  // the row needs its largest magnitude first, so it has two passes; the rows of the second are in a cache. `only`: the
  // one row that the columns are of, if there is one; the first pass is then shorter.
  template <ThreadGroup G, class Pass>
  __device__ void encode(const G& g, int hidden, std::byte* to, const Pass& pass, const SumRow* only = nullptr) const {
    float input_scale = 1.0f;
    if constexpr (ResultCodec<F>::kHasRowScale) {
      LargestColumn largest;
      if (only != nullptr && only->dtype == DType::bf16)
        largest.bits = largest_of_row(g, *only, hidden);
      else
        pass(largest);
      const float inverse = codec::divide_rounded(1.0f, row_scale_of_largest(largest_of_team(g, largest.bits)));
      if (g.thread() == 0) *reinterpret_cast<float*>(to + ResultCodec<F>::layout(hidden).row_scale) = inverse;
      input_scale = codec::divide_rounded(1.0f, inverse);
    }
    const ResultColumns<F, G> columns{g, hidden, input_scale, to};
    pass(columns);
  }
  // The first barrier: every warp has read the words of the row before.
  __device__ std::uint32_t largest_of_team(const SyncedTeam& g, std::uint32_t mine) const {
    std::uint32_t largest = g.max_over<SyncedTeam::kWidth>(mine);
    if (g.size() == SyncedTeam::kWidth) return largest;
    const auto warp = static_cast<int>(threadIdx.x) / 32;
    const int first = warp - g.thread() / 32;
    g.sync();
    if (threadIdx.x % 32 == 0) words[warp] = largest;
    g.sync();
    for (int i = 0; i < g.size() / 32; ++i) largest = codec::larger(largest, words[first + i]);
    return largest;
  }
};
static_assert(RowOps<EncodedOps<F16>, SyncedTeam> && ResultOps<EncodedOps<F16>, SyncedTeam> &&
              RowOps<EncodedOps<F16>, WarpwiseTeam>);

// The ops of a combine whose results travel in the format F. kPipelined: as in sum_rows_ahead.
template <TokenFormat F, bool kPipelined = false>
using OpsOfResults = std::conditional_t<std::is_same_v<F, Bf16>, TeamOpsOf<kPipelined>, EncodedOps<F, kPipelined>>;

}  // namespace ferry::cuda
