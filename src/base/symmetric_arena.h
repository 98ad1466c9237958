// SymmetricArena: allocates pieces at the same offsets on all ranks. The ranks that take part agree by gathering their
// views; no call waits for the other ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ferry/world.h"

namespace ferry {

// [begin, end) of the arena.
struct ArenaPiece {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const ArenaPiece&, const ArenaPiece&) = default;
};

// The pieces that one rank holds. Plain data, for all_gather.
struct ArenaHoldings {
  static constexpr std::size_t kMost = 31;
  std::uint64_t count = 0;
  std::array<ArenaPiece, kMost> pieces{};
};

class SymmetricArena {
 public:
  static constexpr std::uint64_t kAlignment = 4096;

  SymmetricArena(std::uint64_t bytes, int ranks) : bytes_(bytes), holdings_(static_cast<std::size_t>(ranks)) {}

  // [ranks]: what this rank knows of all ranks. For all_gather.
  std::span<const ArenaHoldings> view() const { return holdings_; }
  // This rank lets go of a piece.
  void release(int rank, const ArenaPiece& piece);

  // Takes the first gap that is wide enough; all ranks that the mask does not name hold it from now on. The result is
  // the same on every rank that gives the same `views`, [ranks][ranks]: the view of each rank. Views of masked ranks
  // are not read. I16: what a masked rank held when any other rank last heard of it is not given out again, since it
  // may still write there. Ranks need not have heard the same of a lost rank. Throws Error(system) if there is no such
  // gap.
  ArenaPiece take(std::uint64_t bytes, std::span<const ArenaHoldings> views, const RankMask& mask);

 private:
  std::uint64_t bytes_;
  std::vector<ArenaHoldings> holdings_;  // by rank, as last heard
};

}  // namespace ferry
