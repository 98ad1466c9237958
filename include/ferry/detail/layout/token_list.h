// Token lists: which tokens of a source come to one rank, and so the rows of that rank in the order by_source. A list
// is words of 64 bits:
//
//   word 0      how many tokens come; above, the number of the routing
//   word 1 + i  bit b: token 32 * i + b comes; above, how many of the tokens before 32 * i come
//
// So the row of a token follows from one word, whatever has arrived, and the first row of a source from the first words
// of the sources before it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/formats/portable.h"

namespace ferry {

inline constexpr int kTokensOfListWord = 32;

// Words of the list of a source that has this many tokens.
FERRY_HD constexpr std::size_t token_list_words(int tokens) {
  return 1 + static_cast<std::size_t>((tokens + kTokensOfListWord - 1) / kTokensOfListWord);
}

FERRY_HD constexpr std::uint64_t token_list_word(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}
FERRY_HD constexpr std::uint32_t low_of(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
FERRY_HD constexpr std::uint32_t high_of(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

// `word`: the first word of a list. Whether the list belongs to this routing. A list is written in every routing of its
// parity, so the low bits of the number tell it from the list before.
FERRY_HD constexpr bool is_list_of(std::uint64_t word, Epoch routing) {
  return high_of(word) == static_cast<std::uint32_t>(routing);
}

FERRY_HD inline int count_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __popc(bits);
#else
  return std::popcount(bits);
#endif
}

// Whether token 32 * i + b comes, by word 1 + i.
FERRY_HD constexpr bool comes(std::uint64_t word, int b) { return (low_of(word) >> b & 1u) != 0; }
// How many of its source's tokens before it come.
FERRY_HD inline std::uint32_t tokens_before(std::uint64_t word, int b) {
  return high_of(word) + static_cast<std::uint32_t>(count_bits(low_of(word) & ((1u << b) - 1u)));
}

}  // namespace ferry
