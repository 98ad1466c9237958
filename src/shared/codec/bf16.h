// Bf16: columns as they are, or rounded to bf16 where they come wider. No scales; NaN and infinity pass through.
#pragma once

#include <type_traits>

#include "ferry/token_format.h"
#include "shared/codec/source.h"

namespace ferry {

class Bf16 {
 public:
  FERRY_HD static constexpr const char* name() { return "bf16"; }
  FERRY_HD static constexpr int block() { return 0; }
  FERRY_HD static constexpr int scale_bytes() { return 0; }
  FERRY_HD static constexpr ScaleLayout scale_layout() { return ScaleLayout::none; }
  FERRY_HD static constexpr int alignment() { return 1; }
  FERRY_HD static constexpr std::size_t payload_bytes(int hidden) { return static_cast<std::size_t>(hidden) * 2; }

  // Counts the row once per run of kWidth threads that met a NaN or an infinity: once where the group is one run.
  template <ThreadGroup G>
  FERRY_HD int encode(const G& group, InputRow row, int hidden, float, std::byte* payload, std::byte*) const {
    return codec::with_source(
        row, [&](const auto& source) { return encode_from(group, source, hidden, 1.0f, payload, nullptr); });
  }

  template <ThreadGroup G, class Source>
  FERRY_HD static int encode_from(const G& group, const Source& source, int hidden, float, std::byte* payload,
                                  std::byte*) {
    std::uint32_t largest = 0;
    for (int column = group.thread() * kPart<G>; column < hidden; column += group.size() * kPart<G>) {
      std::uint32_t bits[kPart<G>];
      source.template load<kPart<G>>(column, kPart<G>, bits);
      for (int i = 0; i < kPart<G>; ++i) largest = codec::larger(largest, bits[i] & codec::kMagnitudeMask);
      store<Source>(bits, reinterpret_cast<std::uint16_t*>(payload) + column);
    }
    const bool counts = group.thread() % G::kWidth == 0;
    return group.template max_over<G::kWidth>(largest) >= codec::kInfinityBits && counts ? 1 : 0;
  }

  template <ThreadGroup G>
  FERRY_HD void decode(const G& group, const std::byte* payload, const std::byte*, int hidden, float,
                       float* out) const {
    const auto* stored = reinterpret_cast<const std::uint16_t*>(payload);
    for (int column = group.thread(); column < hidden; column += group.size())
      out[column] = codec::float_of(codec::Bf16Input::float_bits(stored[column]));
  }

 private:
  // Columns a thread takes at a time; a row is a multiple of 32.
  template <class G>
  static constexpr int kPart = G::kWidth == 1 ? 32 : 8;

  // A row that is bf16 already keeps every bit, those of its NaNs too.
  template <class Source>
  FERRY_HD static std::uint32_t to_bf16(std::uint32_t bits) {
    return std::is_same_v<Source, codec::RowSource<codec::Bf16Input>> ? bits >> 16 : codec::bf16_of(bits);
  }

  template <class Source, int kCount>
  FERRY_HD static void store(const std::uint32_t (&bits)[kCount], std::uint16_t* out) {
    if constexpr (kCount == 8) {
      struct alignas(16) Vector {
        std::uint32_t words[4];
      } vector;
      for (int i = 0; i < 4; ++i)
        vector.words[i] = to_bf16<Source>(bits[2 * i]) | (to_bf16<Source>(bits[2 * i + 1]) << 16);
      *reinterpret_cast<Vector*>(out) = vector;
    } else {
      for (int i = 0; i < kCount; ++i) out[i] = static_cast<std::uint16_t>(to_bf16<Source>(bits[i]));
    }
  }
};
static_assert(TokenFormat<Bf16>);

}  // namespace ferry
