// Packs codes of 8, 6 and 4 bits into bytes, and unpacks them. The first code has the low bits. Counts are multiples
// of 8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/formats/portable.h"

namespace ferry::codec {

template <int kBits>
FERRY_HD constexpr std::size_t packed_bytes(int count) {
  return static_cast<std::size_t>(count) * kBits / 8;
}

// Stores kWords words with few wide stores. `out` is aligned to 16 bytes; 2 words are aligned to 8 bytes, 1 and 3 to 4.
template <int kWords>
FERRY_HD inline void store_words(const std::uint32_t* words, std::byte* out) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 3 || kWords % 4 == 0);
  struct alignas(16) Four {
    std::uint32_t word[4];
  };
  struct alignas(8) Two {
    std::uint32_t word[2];
  };
  if constexpr (kWords == 1) {
    *reinterpret_cast<std::uint32_t*>(out) = words[0];
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<Two*>(out) = {{words[0], words[1]}};
  } else if constexpr (kWords == 3) {  // two of the three lie at a multiple of 8 bytes
    const bool first_two = reinterpret_cast<std::uintptr_t>(out) % 8 == 0;
    const Two two = {{first_two ? words[0] : words[1], first_two ? words[1] : words[2]}};
    *reinterpret_cast<Two*>(out + (first_two ? 0 : 4)) = two;
    *reinterpret_cast<std::uint32_t*>(out + (first_two ? 8 : 0)) = first_two ? words[2] : words[0];
  } else {
    for (int i = 0; i < kWords; i += 4)
      *reinterpret_cast<Four*>(out + 4 * i) = {{words[i], words[i + 1], words[i + 2], words[i + 3]}};
  }
}

// The words that eight codes fill; the last one may be half full.
template <int kBits>
inline constexpr int kWordsOfEight = (8 * kBits + 31) / 32;

template <int kBits>
FERRY_HD inline void load_words_of_eight(const std::byte* in, std::uint32_t (&words)[kWordsOfEight<kBits>]) {
  if constexpr (kBits == 8) {
    const std::uint64_t both = *reinterpret_cast<const std::uint64_t*>(in);
    words[0] = static_cast<std::uint32_t>(both);
    words[1] = static_cast<std::uint32_t>(both >> 32);
  } else if constexpr (kBits == 4) {
    words[0] = *reinterpret_cast<const std::uint32_t*>(in);
  } else {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(in);
    words[0] = std::uint32_t{halves[0]} | std::uint32_t{halves[1]} << 16;
    words[1] = halves[2];
  }
}

template <int kBits>
FERRY_HD inline void eight_of_words(const std::uint32_t (&words)[kWordsOfEight<kBits>], std::uint32_t (&codes)[8]) {
  std::uint64_t all = words[0];
  if constexpr (kWordsOfEight<kBits> == 2) all |= std::uint64_t{words[1]} << 32;
  for (int i = 0; i < 8; ++i) codes[i] = static_cast<std::uint32_t>(all >> (kBits * i)) & ((1u << kBits) - 1u);
}

template <int kBits>
FERRY_HD inline void load_eight(const std::byte* in, std::uint32_t (&codes)[8]) {
  std::uint32_t words[kWordsOfEight<kBits>];
  load_words_of_eight<kBits>(in, words);
  eight_of_words<kBits>(words, codes);
}

// Stores the first `count` codes of a thread, in loops that a CPU compiler vectorises.
template <int kBits>
FERRY_HD inline void store_many(const std::uint32_t* codes, int count, std::byte* out) {
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  if constexpr (kBits == 8) {
    for (int i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(codes[i]);
  } else if constexpr (kBits == 4) {
    for (int i = 0; i < count / 2; ++i) bytes[i] = static_cast<unsigned char>(codes[2 * i] | (codes[2 * i + 1] << 4));
  } else {
    for (int i = 0; i < count / 4; ++i) {
      const std::uint32_t word =
          codes[4 * i] | (codes[4 * i + 1] << 6) | (codes[4 * i + 2] << 12) | (codes[4 * i + 3] << 18);
      bytes[3 * i] = static_cast<unsigned char>(word);
      bytes[3 * i + 1] = static_cast<unsigned char>(word >> 8);
      bytes[3 * i + 2] = static_cast<unsigned char>(word >> 16);
    }
  }
}

template <int kBits>
FERRY_HD inline void load_many(const std::byte* in, int count, std::uint32_t* codes) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  if constexpr (kBits == 8) {
    for (int i = 0; i < count; ++i) codes[i] = bytes[i];
  } else if constexpr (kBits == 4) {
    for (int i = 0; i < count / 2; ++i) {
      codes[2 * i] = bytes[i] & 15u;
      codes[2 * i + 1] = static_cast<std::uint32_t>(bytes[i] >> 4);
    }
  } else {
    for (int i = 0; i < count / 4; ++i) {
      const std::uint32_t word =
          bytes[3 * i] | (std::uint32_t{bytes[3 * i + 1]} << 8) | (std::uint32_t{bytes[3 * i + 2]} << 16);
      for (int j = 0; j < 4; ++j) codes[4 * i + j] = (word >> (6 * j)) & 63u;
    }
  }
}

}  // namespace ferry::codec
