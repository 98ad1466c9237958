// Routing entries: what a source tells every rank about one (token, k): the expert, and the position in the expert,
// that is how many earlier entries of this source name the same expert. With the counts of all sources it gives the row
// of every arrival, whatever the order of arrival is.
#pragma once

#include <cstdint>

#include "ferry/formats/portable.h"
#include "ferry/shape.h"

namespace ferry {

struct RoutingEntry {
  std::uint32_t code;  // low bits: expert + 1, or 0 for no expert; above: the position in the expert
  float weight;        // by_rank: the router weight; exact: 1
};
static_assert(sizeof(RoutingEntry) == 8);

struct RoutingHeader {
  std::uint32_t num_tokens = 0;
  float input_scale = 1.0f;  // of the source's tokens; CPU ranks only
  // GPUs: the newest routing whose dispatch had more tokens than it can take, and how many. num_tokens is 0 in it.
  std::uint64_t excess_routing = 0;
  std::uint32_t excess_tokens = 0;
  std::uint32_t by_counts = 0;  // 1: without ids; entries name the first expert of each rank; CPU ranks only
  // GPUs: the newest routing of a dispatch by counts.
  std::uint64_t counts_routing = 0;
  std::uint32_t format = 0;  // DispatchInput::format; CPU ranks only
  std::uint32_t reserved[7] = {};
};
static_assert(sizeof(RoutingHeader) == 64);

struct EntryCode {
  int bits;  // id_bits(experts)

  FERRY_HD std::uint32_t pack(int expert, std::uint32_t position_in_expert) const {
    return static_cast<std::uint32_t>(expert + 1) | position_in_expert << bits;
  }
  FERRY_HD int expert(std::uint32_t code) const { return static_cast<int>(code & ((1u << bits) - 1u)) - 1; }
  FERRY_HD std::uint32_t position_in_expert(std::uint32_t code) const { return code >> bits; }
};

// The experts of one rank, as the protocol counts them. In skip_a2a mode the world is this rank alone and `first` is
// subtracted from the caller's ids.
struct ExpertRange {
  int first;
  int count;
  FERRY_HD bool contains(int expert) const { return expert >= first && expert < first + count; }
};

// Rounds a row number up to the alignment of an expert's first row, which is a power of two.
FERRY_HD constexpr std::uint32_t align_row(std::uint32_t row, int alignment) {
  const auto step = static_cast<std::uint32_t>(alignment);
  return (row + step - 1) & ~(step - 1);
}

}  // namespace ferry
