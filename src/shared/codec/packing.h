// Codes of 8, 6 and 4 bits to bytes and back, first code in the low bits. Counts are multiples of 8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/portable.h"

namespace ferry::codec {

template <int kBits>
FERRY_HD constexpr std::size_t packed_bytes(int count) {
  return static_cast<std::size_t>(count) * kBits / 8;
}

// One thread's 8 codes as few wide stores: `out` is aligned to 8, 2 or 4 bytes for 8, 6 or 4 bits.
template <int kBits>
FERRY_HD inline void store_eight(const std::uint32_t (&codes)[8], std::byte* out) {
  std::uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= std::uint64_t{codes[i]} << (kBits * i);
  if constexpr (kBits == 8) {
    *reinterpret_cast<std::uint64_t*>(out) = word;
  } else if constexpr (kBits == 4) {
    *reinterpret_cast<std::uint32_t*>(out) = static_cast<std::uint32_t>(word);
  } else {
    auto* halves = reinterpret_cast<std::uint16_t*>(out);
    for (int i = 0; i < 3; ++i) halves[i] = static_cast<std::uint16_t>(word >> (16 * i));
  }
}

template <int kBits>
FERRY_HD inline void load_eight(const std::byte* in, std::uint32_t (&codes)[8]) {
  std::uint64_t word = 0;
  if constexpr (kBits == 8) {
    word = *reinterpret_cast<const std::uint64_t*>(in);
  } else if constexpr (kBits == 4) {
    word = *reinterpret_cast<const std::uint32_t*>(in);
  } else {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(in);
    for (int i = 0; i < 3; ++i) word |= std::uint64_t{halves[i]} << (16 * i);
  }
  for (int i = 0; i < 8; ++i) codes[i] = static_cast<std::uint32_t>(word >> (kBits * i)) & ((1u << kBits) - 1u);
}

// The first `count` of a thread's codes, written in loops that a CPU compiler turns into vector code.
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
