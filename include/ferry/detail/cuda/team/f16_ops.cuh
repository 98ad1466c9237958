// F16Ops: the ops of a combine whose rows, bias or sums are f16. Such a combine has kernels of its own, so that the
// kernels of bf16 and f32 know no third type. A CPU makes the same bytes by row_sum.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ferry/detail/cuda/team/encoded_ops.cuh"

namespace ferry::cuda {

__device__ inline std::uint32_t float_bits_of_f16(const uint4& eight, int c) {
  const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
  const std::uint32_t word = words[c / 2];
  return codec::F16Input::number_bits(static_cast<std::uint16_t>(c % 2 == 0 ? word : word >> 16));
}
__device__ inline std::uint32_t two_halves(float first, float second) {
  return static_cast<std::uint32_t>(codec::f16_of(codec::bits_of(first))) |
         static_cast<std::uint32_t>(codec::f16_of(codec::bits_of(second))) << 16;
}

// Eight columns of a row of any type, or of a result in the format F.
template <TokenFormat F>
struct MixedColumns {
  static constexpr int kRegisters = 8;
  float values[8];

  __device__ void load(const SumRow& row, int column, int hidden) {
    if (row.dtype == DType::f16) {
      const uint4 eight = load_vector(row.data + static_cast<std::size_t>(column) * 2);
      for (int c = 0; c < 8; ++c) values[c] = __uint_as_float(float_bits_of_f16(eight, c));
    } else if constexpr (std::is_same_v<F, Bf16>) {
      EightColumns<true> plain;
      plain.load(row, column, hidden);
      for (int c = 0; c < 8; ++c) values[c] = __uint_as_float(plain.float_bits(c, row.is_f32()));
    } else {
      AnyColumns<F, EightColumns<true>> others;
      others.load(row, column, hidden);
      for (int c = 0; c < 8; ++c) values[c] = others.values[c];
    }
  }
  __device__ std::uint32_t float_bits(int c, bool) const { return __float_as_uint(values[c]); }
};

// As StoredColumns, of any type.
struct MixedSink {
  static constexpr bool kTogether = false;
  const RowSink& sink;
  __device__ void put(int column, const float (&sum)[8]) const {
    if (sink.dtype != DType::f16 || sink.epilogue != nullptr) return store_eight(sink, column, sum);
    if (sink.data == nullptr) return;  // a warm-up (combine_receive.cuh)
    *reinterpret_cast<uint4*>(reinterpret_cast<std::uint16_t*>(sink.data) + column) = make_uint4(
        two_halves(sum[0], sum[1]), two_halves(sum[2], sum[3]), two_halves(sum[4], sum[5]), two_halves(sum[6], sum[7]));
  }
};
static_assert(ColumnSink<const MixedSink>);

template <TokenFormat F>
struct F16Ops : OpsOfResults<F> {
  using Usual = OpsOfResults<F>;
  static constexpr bool kEncodes = !std::is_same_v<F, Bf16>;

  __device__ static F16Ops of_block(std::uint32_t* words) { return F16Ops{Usual::of_block(words)}; }

  template <ThreadGroup G>
  __device__ void sum_rows(const G& g, const SumRow* rows, int count, int hidden, const RowSink& sink) const {
    const MixedSink to{sink};
    if constexpr (kEncodes)
      sum_results<F, MixedColumns<Bf16>>(g, rows, count, hidden, to);
    else
      sum_columns<MixedColumns<F>, 2>(g, rows, count, hidden, to);
  }
  template <ThreadGroup G>
  __device__ void convert_row(const G& g, const SumRow& row, int hidden, std::byte* to, DType dtype) const {
    if (row.dtype != DType::f16 && dtype != DType::f16) return Usual::convert_row(g, row, hidden, to, dtype);
    const RowSink sink{to, dtype};
    each_eight(g, row, hidden, [&](int column, const float(&values)[8], bool exist) {
      if (exist && dtype == DType::f16) MixedSink{sink}.put(column, values);
      for (int c = 0; exist && dtype != DType::f16 && c < 8; ++c) store_value(to, dtype, column + c, values[c]);
    });
  }
  template <ThreadGroup G>
  __device__ void write_sum(const G& g, const SumRow* rows, int count, int hidden, std::byte* to) const {
    if (rows[0].dtype != DType::f16) return Usual::write_sum(g, rows, count, hidden, to);
    if constexpr (kEncodes)
      this->encode(g, hidden, to,
                   [&](auto& columns) { sum_columns<MixedColumns<F>, 2>(g, rows, count, hidden, columns); });
    else
      sum_rows(g, rows, count, hidden, RowSink{to});
  }
  template <ThreadGroup G>
  __device__ void write_row(const G& g, const SumRow& row, int hidden, std::byte* to) const {
    if (row.dtype != DType::f16) return Usual::write_row(g, row, hidden, to);
    if constexpr (kEncodes)
      this->encode(g, hidden, to, [&](auto& columns) { put_row<MixedColumns<F>>(g, row, hidden, columns); });
    else
      convert_row(g, row, hidden, to, DType::bf16);
  }

 private:
  // Calls put(column, values, whether they exist) for all columns of a row, in steps that all threads make together.
  template <ThreadGroup G, class Put>
  __device__ static void each_eight(const G& g, const SumRow& row, int hidden, const Put& put) {
    for (int begin = 0; begin < hidden; begin += g.size() * 8) {
      const int column = begin + g.thread() * 8;
      MixedColumns<F> loaded;
      loaded.load(row, min(column, hidden - 8), hidden);
      put(column, loaded.values, column < hidden);
    }
  }
};
static_assert(RowOps<F16Ops<Bf16>, SyncedTeam> && ResultOps<F16Ops<Bf16>, SyncedTeam> &&
              RowOps<F16Ops<Bf16>, WarpwiseTeam>);

}  // namespace ferry::cuda
