#include "base/symmetric_arena.h"

#include <fmt/core.h>

#include <algorithm>

#include "ferry/error.h"

namespace ferry {

void SymmetricArena::release(int rank, const ArenaPiece& piece) {
  ArenaHoldings& mine = holdings_[static_cast<std::size_t>(rank)];
  auto* const end = mine.pieces.begin() + mine.count;
  auto* const found = std::find(mine.pieces.begin(), end, piece);
  if (found == end) return;
  *found = mine.pieces[mine.count - 1];
  --mine.count;
}

ArenaPiece SymmetricArena::take(std::uint64_t bytes, std::span<const ArenaHoldings> views, const RankMask& mask) {
  const std::size_t ranks = holdings_.size();
  const auto in = [&](std::size_t rank) { return !is_masked(mask, static_cast<int>(rank)); };
  std::vector<ArenaPiece> held;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (in(rank)) holdings_[rank] = views[rank * ranks + rank];
    for (std::size_t teller = 0; teller < ranks; ++teller) {
      if (in(rank) ? teller != rank : !in(teller)) continue;
      const ArenaHoldings& each = views[teller * ranks + rank];
      const auto count = std::min<std::uint64_t>(each.count, ArenaHoldings::kMost);
      held.insert(held.end(), each.pieces.begin(), each.pieces.begin() + count);
      if (in(rank) && count == ArenaHoldings::kMost)
        throw Error(ErrorKind::system,
                    fmt::format("rank {} holds {} exchanges already, which is the most", rank, count));
    }
  }
  std::sort(held.begin(), held.end(), [](const ArenaPiece& a, const ArenaPiece& b) { return a.begin < b.begin; });
  const std::uint64_t wanted = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::uint64_t at = 0;
  for (const ArenaPiece& piece : held) {
    if (piece.begin >= at + wanted) break;
    at = std::max(at, piece.end);
  }
  if (at + wanted > bytes_)
    throw Error(
        ErrorKind::system,
        fmt::format("the symmetric heap of {} bytes has no {} bytes in one piece; make the world with heap_bytes "
                    "of {} or more, or destroy exchanges that are not used any more",
                    bytes_, wanted, at + wanted));
  const ArenaPiece piece{at, at + wanted};
  for (std::size_t rank = 0; rank < holdings_.size(); ++rank) {
    if (is_masked(mask, static_cast<int>(rank))) continue;
    ArenaHoldings& each = holdings_[rank];
    each.pieces[each.count] = piece;
    ++each.count;
  }
  return piece;
}

}  // namespace ferry
