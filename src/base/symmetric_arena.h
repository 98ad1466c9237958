// SymmetricArena: pieces of a memory that lies at the same offsets on all ranks, given out by agreement of the ranks
// that take part and never by a call that waits for the others.
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

// What one rank holds; plain data, for all_gather.
struct ArenaHoldings {
  static constexpr std::size_t kMost = 31;
  std::uint64_t count = 0;
  std::array<ArenaPiece, kMost> pieces{};
};

class SymmetricArena {
 public:
  static constexpr std::uint64_t kAlignment = 4096;

  SymmetricArena(std::uint64_t bytes, int ranks) : bytes_(bytes), holdings_(static_cast<std::size_t>(ranks)) {}

  const ArenaHoldings& held_by(int rank) const { return holdings_[static_cast<std::size_t>(rank)]; }
  // [ranks]: what this rank knows of all, for all_gather.
  std::span<const ArenaHoldings> view() const { return holdings_; }
  // This rank lets go of a piece.
  void release(int rank, const ArenaPiece& piece);

  // The same on every rank that is given the same `views`, [ranks][ranks], the view of each (those of masked ranks are
  // not looked at): the first gap that is wide enough, held by all ranks that the mask leaves in from now on. I16: what
  // a masked rank held when any of the others last heard of it is not given out again, since it may still write there;
  // the others need not have heard the same of a rank that was lost. Throws Error(system) where there is none.
  ArenaPiece take(std::uint64_t bytes, std::span<const ArenaHoldings> views, const RankMask& mask);

 private:
  std::uint64_t bytes_;
  std::vector<ArenaHoldings> holdings_;  // by rank, as last heard
};

}  // namespace ferry
