// Shape: the numbers that fix an exchange, which rank owns which expert, and what makes a shape impossible.
#pragma once

#include <cstdint>
#include <string>

#include "ferry/formats/portable.h"

namespace ferry {

inline constexpr int kMaxRanks = 2048;  // all ranks; a node holds at most kMaxRanksPerNode of them
inline constexpr int kMaxRanksPerNode = 72;
inline constexpr int kMaxGpuRanks = 72;  // GPU ranks of one node; over NVSHMEM there are up to kMaxRanks in all
inline constexpr int kMaxTopK = 32;
inline constexpr int kMaxBias = 2;          // tensors that a combine adds to its sums
inline constexpr int kHiddenMultiple = 32;  // one MX block

struct Shape {
  int ranks = 0;       // R
  int experts = 0;     // E, over all ranks
  int top_k = 0;       // K, entries of topk_ids per token
  int max_tokens = 0;  // T, most tokens a rank dispatches in a round
  int hidden = 0;      // columns of a token

  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

// The E % R first ranks own one expert more than the others; experts of a rank are consecutive.
FERRY_HD constexpr int num_local_experts(const Shape& s, int rank) {
  return s.experts / s.ranks + (rank < s.experts % s.ranks ? 1 : 0);
}
FERRY_HD constexpr int first_expert(const Shape& s, int rank) {
  const int larger_ranks = s.experts % s.ranks;
  return rank * (s.experts / s.ranks) + (rank < larger_ranks ? rank : larger_ranks);
}
FERRY_HD constexpr int owner_of(const Shape& s, int expert) {
  const int base = s.experts / s.ranks;
  const int larger_ranks = s.experts % s.ranks;
  const int in_larger = larger_ranks * (base + 1);
  return expert < in_larger ? expert / (base + 1) : larger_ranks + (expert - in_larger) / base;
}
FERRY_HD constexpr int max_local_experts(const Shape& s) { return (s.experts + s.ranks - 1) / s.ranks; }

// Bits that an expert id takes in a routing entry (0 means "no expert"). The others hold the position in expert.
FERRY_HD constexpr int id_bits(int experts) {
  int bits = 0;
  while ((std::int64_t{1} << bits) < std::int64_t{experts} + 1) ++bits;
  return bits;
}

// Null where the shape can work, else the reason as a constant sentence. Usable in static_assert.
constexpr const char* why_invalid(const Shape& s) {
  if (s.ranks < 1) return "ranks must be at least 1";
  if (s.ranks > kMaxRanks) return "ranks must be at most 2048";
  if (s.experts < 1) return "experts must be at least 1";
  if (s.experts < s.ranks) return "experts must be at least ranks: every rank owns one or more";
  if (s.top_k < 1) return "top_k must be at least 1";
  if (s.top_k > kMaxTopK) return "top_k must be at most 32";
  if (s.top_k > s.experts) return "top_k must be at most experts: the ids of a token are distinct";
  if (s.max_tokens < 1) return "max_tokens must be at least 1";
  if (s.hidden < kHiddenMultiple || s.hidden % kHiddenMultiple != 0) return "hidden must be a positive multiple of 32";
  if ((std::int64_t{s.max_tokens} * s.top_k) >> (32 - id_bits(s.experts)) != 0)
    return "max_tokens * top_k must fit the 32 bits of a routing entry beside the expert id";
  return nullptr;
}

// "ranks=4 experts=64 top_k=8 max_tokens=512 hidden=7168".
std::string to_string(const Shape& shape);

// Throws Error(invalid_argument) with why_invalid's reason and all values where the shape cannot work.
void require_valid(const Shape& shape);

}  // namespace ferry
