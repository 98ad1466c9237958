// ResultCodec: eight columns of a result in a format, in the registers of one thread: encoded as they have been summed,
// and decoded as they are added. The format's encode and decode make the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/formats/packing.h"
#include "ferry/detail/formats/rounded.h"
#include "ferry/detail/layout/result_layout.h"

namespace ferry::cuda {

// A format without scales whose columns are encoded one by one: F16, F32.
template <class F>
concept PlainColumnFormat = TokenFormat<F> && requires(typename F::Code code, std::uint32_t bits) {
  { F::encode_column(bits) } -> std::same_as<typename F::Code>;
  { F::decode_column(code) } -> std::same_as<std::uint32_t>;
};

// A format whose columns are encoded by the threads that share a block of them, and decoded eight at a time.
template <class F>
concept ResultColumnFormat = ColumnFormat<F> && DecodesColumns<F>;

template <TokenFormat F>
struct ResultCodec {
  static_assert(PlainColumnFormat<F> || ResultColumnFormat<F>,
                "on a GPU a format of results encodes columns from registers and decodes eight at a time "
                "(docs/adding-a-format.md)");
  static constexpr bool kHasRowScale = has_row_scale(F{});

  FERRY_HD static constexpr ResultLayout layout(int hidden) {
    return result_layout(F{}.payload_bytes(hidden), scales_per_row(F{}, hidden) * F{}.scale_bytes(), kHasRowScale);
  }

  // Encodes `values`, columns from `column` on, into the result at `to`. Neighbouring threads of the group have
  // neighbouring columns, and all threads of a warp call it: threads that share a block compare their columns. `exist`
  // is false behind the end of the row.
  template <ThreadGroup G>
  __device__ static void encode(const G& g, const float (&values)[8], int column, bool exist, int hidden,
                                float input_scale, std::byte* to) {
    if constexpr (PlainColumnFormat<F>) {
      if (exist) encode_plain(values, column, to);
    } else if constexpr (kByEight) {
      std::uint32_t bits[8];
      for (int i = 0; i < 8; ++i) bits[i] = codec::bits_of(values[i]);
      encode_block<8>(g, bits, column, exist, hidden, input_scale, to);
    } else {
      std::uint32_t bits[16];
      share_with_neighbour(g, values, bits);
      encode_block<16>(g, bits, column, exist, hidden, input_scale, to);
    }
  }

  // Columns that exist.
  __device__ static void decode(const std::byte* from, std::size_t scales, int column, float input_scale,
                                float (&values)[8]) {
    if constexpr (PlainColumnFormat<F>) {
      const Eight<typename F::Code> eight = reinterpret_cast<const Eight<typename F::Code>*>(from)[column / 8];
      for (int i = 0; i < 8; ++i) values[i] = codec::float_of(F::decode_column(eight.code[i]));
    } else {
      F::decode_columns(from, from + scales, column, input_scale, values);
    }
  }

 private:
  template <class Code>
  struct alignas(16) Eight {
    Code code[8];
  };
  // Eight columns are encoded by themselves if their codes fill whole words. Codes of 6 bits need sixteen columns,
  // which two threads have.
  static constexpr bool kByEight = F{}.payload_bytes(8) % 4 == 0;

  __device__ static void encode_plain(const float (&values)[8], int column, std::byte* to) {
    Eight<typename F::Code> eight;
    for (int i = 0; i < 8; ++i) eight.code[i] = F::encode_column(codec::bits_of(values[i]));
    reinterpret_cast<Eight<typename F::Code>*>(to)[column / 8] = eight;
  }

  // Both threads of a pair get the columns of both.
  template <ThreadGroup G>
  __device__ static void share_with_neighbour(const G& g, const float (&values)[8], std::uint32_t (&bits)[16]) {
    const bool is_second = g.thread() % 2 != 0;
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t mine = codec::bits_of(values[i]);
      const std::uint32_t other = __shfl_xor_sync(kAllLanes, mine, 1u);
      bits[i] = is_second ? other : mine;
      bits[8 + i] = is_second ? mine : other;
    }
  }

  // kColumns: that this thread encodes. Where they are two threads', both encode them and the first one stores.
  template <int kColumns, ThreadGroup G>
  __device__ static void encode_block(const G& g, const std::uint32_t (&bits)[kColumns], int column, bool exist,
                                      int hidden, float input_scale, std::byte* to) {
    constexpr int kBlock = F{}.block();
    static_assert(kBlock % 8 == 0 && kBlock / 8 <= 32, "a warp has the columns of a block");
    const auto encoded = F::template encode_columns<kBlock / 8, kColumns>(g, bits, input_scale, exist);
    if (!exist || column % kColumns != 0) return;
    constexpr int kWords = static_cast<int>(F{}.payload_bytes(kColumns) / 4);
    std::byte* const payload = to + F{}.payload_bytes(column);
    codec::store_words<kWords>(encoded.words, payload);
    if (column % kBlock == 0)
      reinterpret_cast<typename F::Stored*>(to + layout(hidden).scales)[column / kBlock] = encoded.scale;
  }
};

}  // namespace ferry::cuda
