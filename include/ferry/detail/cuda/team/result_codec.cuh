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

// A format that tells loading from decoding: a receiver then has the columns of several results on their way at once.
template <class F>
concept LoadsColumns = DecodesColumns<F> &&
    requires(const std::byte* in, const typename F::LoadedColumns& loaded, float (&values)[8]) {
  { F::load_columns(in, in, int{}) } -> std::same_as<typename F::LoadedColumns>;
  F::decode_loaded(loaded, float{}, values);
};

// Eight columns of a result as they were loaded; decoded already where the format knows no other way.
template <TokenFormat F>
struct LoadedColumnsOf {
  struct Type {
    float values[8];
  };
};
template <PlainColumnFormat F>
struct LoadedColumnsOf<F> {
  struct alignas(16) Type {
    typename F::Code code[8];
  };
};
template <LoadsColumns F>
struct LoadedColumnsOf<F> {
  using Type = typename F::LoadedColumns;
};

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

  using Loaded = typename LoadedColumnsOf<F>::Type;

  // Columns that exist, of a result. `scales` is where its scales begin.
  __device__ static Loaded load(const std::byte* result, std::size_t scales, int column) {
    if constexpr (PlainColumnFormat<F>) {
      return reinterpret_cast<const Loaded*>(result)[column / 8];
    } else if constexpr (LoadsColumns<F>) {
      return F::load_columns(result, result + scales, column);
    } else {
      static_assert(!kHasRowScale, "a format with a scale for the row has load_columns and decode_loaded");
      Loaded loaded;
      F::decode_columns(result, result + scales, column, 1.0f, loaded.values);
      return loaded;
    }
  }
  __device__ static void decode(const Loaded& loaded, float input_scale, float (&values)[8]) {
    if constexpr (PlainColumnFormat<F>)
      for (int i = 0; i < 8; ++i) values[i] = codec::float_of(F::decode_column(loaded.code[i]));
    else if constexpr (LoadsColumns<F>)
      F::decode_loaded(loaded, input_scale, values);
    else
      for (int i = 0; i < 8; ++i) values[i] = loaded.values[i];
  }
  // The columns as addends of a sum, which does not see the sign of a zero. A scale of the row must be moderate: then
  // all blocks of a row have one prepared divisor.
  struct NoDivisor {};
  __device__ static auto divisor_of([[maybe_unused]] float row_scale) {
    if constexpr (kHasRowScale)
      return F::divisor_of(codec::reciprocal_rounded(row_scale));
    else
      return NoDivisor{};
  }
  template <class Divisor>
  __device__ static void decode_addends(const Loaded& loaded, [[maybe_unused]] const Divisor& divisor,
                                        float (&values)[8]) {
    if constexpr (kHasRowScale)
      F::decode_addends(loaded, divisor, values);
    else
      decode(loaded, 1.0f, values);
  }
  // What decode takes as the input scale. Results without a scale for the row have 1.
  __device__ static float row_scale(const std::byte* result, const ResultLayout& at) {
    return kHasRowScale ? *reinterpret_cast<const float*>(result + at.row_scale) : 1.0f;
  }
  __device__ static float input_scale_of(float row_scale) {
    return kHasRowScale ? codec::inverse_rounded(row_scale) : 1.0f;
  }

 private:
  // Eight columns are encoded by themselves if their codes fill whole words. Codes of 6 bits need sixteen columns,
  // which two threads have.
  static constexpr bool kByEight = F{}.payload_bytes(8) % 4 == 0;

  __device__ static void encode_plain(const float (&values)[8], int column, std::byte* to) {
    Loaded eight;
    for (int i = 0; i < 8; ++i) eight.code[i] = F::encode_column(codec::bits_of(values[i]));
    reinterpret_cast<Loaded*>(to)[column / 8] = eight;
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
