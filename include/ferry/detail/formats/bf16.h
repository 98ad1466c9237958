// Bf16: columns as they are, or rounded to bf16 where they are wider. It has no scales; NaN and infinity pass through.
#pragma once

#include <type_traits>

#include "ferry/detail/formats/packing.h"
#include "ferry/detail/formats/source.h"
#include "ferry/token_format.h"

namespace ferry {

class Bf16 {
 public:
  FERRY_HD static constexpr const char* name() { return "bf16"; }
  FERRY_HD static constexpr int block() { return 0; }
  FERRY_HD static constexpr int scale_bytes() { return 0; }
  FERRY_HD static constexpr ScaleLayout scale_layout() { return ScaleLayout::none; }
  FERRY_HD static constexpr int alignment() { return 1; }
  static constexpr bool takes_input_scale() { return false; }
  FERRY_HD static constexpr std::size_t payload_bytes(int hidden) { return static_cast<std::size_t>(hidden) * 2; }

  // Every run of kWidth threads that met a NaN or an infinity counts the row once.
  template <ThreadGroup G>
  FERRY_HD int encode(const G& group, InputRow row, int hidden, float, std::byte* payload, std::byte*) const {
    return codec::with_source(row, [&](const auto& source) {
      if constexpr (G::kWidth == 1)
        return encode_by_one(source, hidden, payload);
      else
        return encode_together(group, source, hidden, payload);
    });
  }

  // Rounds kColumns columns to bf16, two in a word. `largest` is their largest magnitude. A NaN keeps its upper bits.
  template <int kColumns>
  FERRY_HD static void pack_columns(const std::uint32_t (&bits)[kColumns], [[maybe_unused]] std::uint32_t largest,
                                    std::uint32_t (&words)[kColumns / 2]) {
#if defined(__CUDA_ARCH__)
    if (largest <= codec::kInfinityBits) {  // the instruction would give one NaN for all
      for (int i = 0; i < kColumns / 2; ++i)
        words[i] = ptx::two_bf16(codec::float_of(bits[2 * i]), codec::float_of(bits[2 * i + 1]));
      return;
    }
#endif
    for (int i = 0; i < kColumns / 2; ++i)
      words[i] = codec::bf16_of(bits[2 * i]) | (codec::bf16_of(bits[2 * i + 1]) << 16);
  }

  template <ThreadGroup G>
  FERRY_HD void decode(const G& group, const std::byte* payload, const std::byte*, int hidden, float,
                       float* out) const {
    const auto* stored = reinterpret_cast<const std::uint16_t*>(payload);
    for (int column = group.thread(); column < hidden; column += group.size())
      out[column] = codec::float_of(codec::Bf16Input::float_bits(stored[column]));
  }

  // The values of eight columns from `column` on, a multiple of 8, which all exist.
  FERRY_HD static void decode_columns(const std::byte* payload, const std::byte*, int column, float,
                                      float (&values)[8]) {
    struct alignas(16) Eight {
      std::uint16_t stored[8];
    };
    const Eight eight = reinterpret_cast<const Eight*>(payload)[column / 8];
    for (int i = 0; i < 8; ++i) values[i] = codec::float_of(codec::Bf16Input::float_bits(eight.stored[i]));
  }

 private:
  static constexpr int kColumns = 8;  // that a thread of a group takes at a time; a row is a multiple of 32
  template <class Source>
  static constexpr bool kIsBf16 = std::is_same_v<Source, codec::RowSource<codec::Bf16Input>>;

  template <class Source>
  FERRY_HD static int encode_by_one(const Source& source, int hidden, std::byte* payload) {
    constexpr int kStrip = 32;
    std::uint32_t largest = 0;
    auto* const out = reinterpret_cast<std::uint16_t*>(payload);
    for (int column = 0; column < hidden; column += kStrip) {
      std::uint32_t bits[kStrip];
      source.template load<kStrip>(column, kStrip, bits);
      for (int i = 0; i < kStrip; ++i) largest = codec::larger(largest, bits[i] & codec::kMagnitudeMask);
      // A bf16 row keeps every bit, those of its NaNs too.
      for (int i = 0; i < kStrip; ++i)
        out[column + i] = static_cast<std::uint16_t>(kIsBf16<Source> ? bits[i] >> 16 : codec::bf16_of(bits[i]));
    }
    return largest >= codec::kInfinityBits ? 1 : 0;
  }

  template <class G, class Source>
  FERRY_HD static int encode_together(const G& group, const Source& source, int hidden, std::byte* payload) {
    using Input = typename Source::Element;
    std::uint32_t largest = 0;
    const int stride = group.size() * kColumns;
    const auto columns_at = [&](int column) { return column < hidden ? kColumns : 0; };
    int column = group.thread() * kColumns;
    auto next = source.template fetch<kColumns>(column, columns_at(column));
    for (; column < hidden; column += stride) {
      const auto fetched = next;
      next = source.template fetch<kColumns>(column + stride, columns_at(column + stride));
      std::uint32_t bits[kColumns];
      std::uint32_t mine = 0;
      for (int i = 0; i < kColumns; ++i) bits[i] = Input::float_bits(fetched.elements[i]);
      for (int i = 0; i < kColumns; ++i) mine = codec::larger_magnitude(mine, bits[i]);
      std::uint32_t words[kColumns / 2];
      if constexpr (kIsBf16<Source>)
        for (int i = 0; i < kColumns / 2; ++i) words[i] = (bits[2 * i] >> 16) | bits[2 * i + 1];
      else
        pack_columns(bits, mine, words);
      codec::store_words<kColumns / 2>(words, payload + static_cast<std::size_t>(column) * 2);
      largest = codec::larger(largest, mine);
    }
    const bool counts = group.thread() % G::kWidth == 0;
    return group.template max_over<G::kWidth>(largest) >= codec::kInfinityBits && counts ? 1 : 0;
  }
};
static_assert(TokenFormat<Bf16> && DecodesColumns<Bf16>);

}  // namespace ferry
