// The sums of results that come encoded. The columns of a result stay as they lie in memory until they are added, so
// that the loads of several results are in flight together.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/team/result_codec.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

// kVectors vectors of eight columns, as VectorSums. `Plain`: eight columns of a row that is no result, as bias is.
template <class F, class Plain, int kVectors>
struct ResultSums {
  using Codec = ResultCodec<F>;
  int column[kVectors];
  float sum[kVectors][8] = {};
  bool all_moderate = true;  // the scales of the results, where they have one each

  // Adds kRows results. No load waits for another. Where a scale is not moderate the sum is of no use.
  template <int kRows>
  __device__ void add_results(const SumRow* rows, int hidden) {
    const ResultLayout at = Codec::layout(hidden);
    typename Codec::Loaded loaded[kRows][kVectors];
    float scale[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const std::byte* const result = rows[i].data;
      __builtin_assume(__isGlobal(result));
      scale[i] = Codec::row_scale(result, at);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) loaded[i][v] = Codec::load(result, at.scales, column[v]);
    }
    keep_loads_ahead();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float weight = rows[i].weight;
      if constexpr (Codec::kHasRowScale) all_moderate = all_moderate && codec::is_moderate(scale[i]);
      const auto divisor = Codec::divisor_of(scale[i]);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        float values[8];
        Codec::decode_addends(loaded[i][v], divisor, values);
        if (weight != 1.0f)
          for (float& value : values) value = __fmul_rn(weight, value);
#pragma unroll
        for (int c = 0; c < 8; ++c) sum[v][c] = __fadd_rn(sum[v][c], values[c]);
      }
    }
  }
  __device__ void add_plain(const SumRow& row, int hidden) {
    Plain loaded[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) loaded[v].load(row, column[v], hidden);
    keep_loads_ahead();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) add_columns(sum[v], row.weight, loaded[v], row.is_f32());
  }
};

__device__ inline bool is_result(const SumRow& row) { return row.dtype == DType::u8; }

// Eight columns of a result, or of another row, decoded as they are loaded.
template <class F, class Plain>
struct AnyColumns {
  static constexpr int kRegisters = 8;
  float values[8];

  __device__ void load(const SumRow& row, int column, int hidden) {
    if (is_result(row)) {
      using Codec = ResultCodec<F>;
      __builtin_assume(__isGlobal(row.data));
      const ResultLayout at = Codec::layout(hidden);
      const float input_scale = Codec::input_scale_of(Codec::row_scale(row.data, at));
      return Codec::decode(Codec::load(row.data, at.scales, column), input_scale, values);
    }
    Plain plain;
    plain.load(row, column, hidden);
    for (int c = 0; c < 8; ++c) values[c] = __uint_as_float(plain.float_bits(c, row.is_f32()));
  }
  __device__ std::uint32_t float_bits(int c, bool) const { return __float_as_uint(values[c]); }
};

// Rows that are no results come first or last.
template <class F, class Plain, int kVectors, ColumnSink To>
__device__ void sum_result_vectors(const SumRow* rows, int count, int first_column, int stride, int hidden, To& to) {
  ResultSums<F, Plain, kVectors> sums;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) sums.column[v] = min(first_column + v * stride, hidden - 8);
  int i = 0;
#pragma unroll 1
  for (; i < count && !is_result(rows[i]); ++i) sums.add_plain(rows[i], hidden);
#pragma unroll 1
  for (; i + 2 <= count && is_result(rows[i + 1]); i += 2) sums.template add_results<2>(rows + i, hidden);
  if (i < count && is_result(rows[i])) sums.template add_results<1>(rows + i++, hidden);
#pragma unroll 1
  for (; i < count; ++i) sums.add_plain(rows[i], hidden);
  if (ResultCodec<F>::kHasRowScale && !sums.all_moderate) {
    const int end = min(hidden, first_column + kVectors * stride);
#pragma unroll 1
    for (int column = first_column; column < end; column += stride) {
      float sum[8] = {};
#pragma unroll 1
      for (i = 0; i < count; ++i) {
        AnyColumns<F, Plain> columns;
        columns.load(rows[i], column, hidden);
        add_columns(sum, rows[i].weight, columns, false);
      }
      to.put(column, sum);
    }
    return;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (first_column + v * stride < hidden) to.put(first_column + v * stride, sums.sum[v]);
}

// Vectors of a thread in flight. A scale for the row takes registers, too: with four vectors one of them spills.
template <class F>
inline constexpr int kResultVectors = sizeof(typename ResultCodec<F>::Loaded) > sizeof(uint4) ? 2
                                      : ResultCodec<F>::kHasRowScale                          ? 3
                                                                                              : 4;

// As sum_columns.
template <class F, class Plain, ThreadGroup G, ColumnSink To>
__device__ void sum_results(const G& g, const SumRow* rows, int count, int hidden, To& to) {
  constexpr int kVectors = kResultVectors<F>;
  const int stride = g.size() * 8;
  for (int begin = 0; begin < hidden;) {
    const int column = begin + g.thread() * 8;
    if (begin + (kVectors / 2) * stride < hidden) {
      sum_result_vectors<F, Plain, kVectors>(rows, count, column, stride, hidden, to);
      begin += kVectors * stride;
    } else {
      sum_result_vectors<F, Plain, kVectors / 2>(rows, count, column, stride, hidden, to);
      begin += kVectors / 2 * stride;
    }
  }
}

}  // namespace ferry::cuda
