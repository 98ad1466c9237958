// Pieces of a symmetric heap, given out alike on all ranks.
#include "base/symmetric_arena.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ferry/error.h"

namespace ferry {
namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kPage = SymmetricArena::kAlignment;

// All ranks' arenas, and a take on all that take part.
struct Ranks {
  explicit Ranks(std::uint64_t pages) : arenas(kRanks, SymmetricArena(pages * kPage, kRanks)) {}

  ArenaPiece take(std::uint64_t bytes, const RankMask& mask = {}) {
    const std::vector<ArenaHoldings> views = gathered(mask);
    std::vector<ArenaPiece> pieces;
    for (int rank = 0; rank < kRanks; ++rank)
      if (!is_masked(mask, rank)) pieces.push_back(arenas[static_cast<std::size_t>(rank)].take(bytes, views, mask));
    EXPECT_THAT(pieces, testing::Each(pieces.front())) << "all ranks take the same";
    return pieces.front();
  }
  std::vector<ArenaHoldings> gathered(const RankMask& mask) const {
    std::vector<ArenaHoldings> views(kRanks * kRanks);
    for (int rank = 0; rank < kRanks; ++rank)
      if (!is_masked(mask, rank))
        std::ranges::copy(arenas[static_cast<std::size_t>(rank)].view(), views.begin() + rank * kRanks);
    return views;
  }
  void release(int rank, const ArenaPiece& piece) { arenas[static_cast<std::size_t>(rank)].release(rank, piece); }

  std::vector<SymmetricArena> arenas;
};

TEST(SymmetricArena, GivesOutPiecesThatDoNotOverlap) {
  Ranks ranks(10);
  EXPECT_EQ(ranks.take(1), (ArenaPiece{0, kPage}));
  EXPECT_EQ(ranks.take(kPage + 1), (ArenaPiece{kPage, 3 * kPage}));
  EXPECT_EQ(ranks.take(kPage), (ArenaPiece{3 * kPage, 4 * kPage}));
}

TEST(SymmetricArena, TakesAGapOnlyWhenAllRanksHaveLetItGo) {
  Ranks ranks(10);
  const ArenaPiece first = ranks.take(2 * kPage);
  ranks.take(kPage);
  ranks.release(0, first);
  ranks.release(2, first);
  EXPECT_EQ(ranks.take(kPage).begin, 3 * kPage) << "rank 1 still holds the first";
  ranks.release(1, first);
  EXPECT_EQ(ranks.take(2 * kPage), first);
}

TEST(SymmetricArena, KeepsWhatAMaskedRankMayStillWriteTo) {
  Ranks ranks(10);
  const ArenaPiece shared = ranks.take(kPage);
  for (const int rank : {0, 1}) ranks.release(rank, shared);
  const RankMask without_2{false, false, true};
  const ArenaPiece next = ranks.take(kPage, without_2);
  EXPECT_EQ(next.begin, kPage) << "rank 2 has not let the first go";
  for (const int rank : {0, 1}) ranks.release(rank, next);
  EXPECT_EQ(ranks.take(kPage, without_2), next) << "which it never held";
}

TEST(SymmetricArena, IsAlikeOnRanksThatHeardDifferentThingsOfALostOne) {
  Ranks ranks(10);
  const ArenaPiece large = ranks.take(2 * kPage);
  for (const int rank : {0, 1, 2}) ranks.release(rank, large);
  // Rank 2 is lost while an exchange is made: rank 0 has heard from it, rank 1 has not.
  const ArenaPiece small = ranks.arenas[0].take(kPage, ranks.gathered({}), {});
  ranks.release(0, small);
  EXPECT_EQ(ranks.take(kPage, {false, false, true}).begin, 2 * kPage) << "rank 1 knows that rank 2 held as much";
}

TEST(SymmetricArena, SaysHowMuchIsNeeded) {
  Ranks ranks(4);
  const ArenaPiece all = ranks.take(4 * kPage);
  for (const int rank : {0, 1, 2}) ranks.release(rank, all);
  ranks.take(3 * kPage);
  try {
    ranks.take(2 * kPage);
    ADD_FAILURE() << "there is no room";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr(std::to_string(5 * kPage)), testing::HasSubstr("heap_bytes")));
  }
}

TEST(SymmetricArena, RefusesMoreExchangesThanItCanName) {
  Ranks ranks(100);
  for (std::size_t i = 0; i < ArenaHoldings::kMost; ++i) ranks.take(kPage);
  EXPECT_THROW(ranks.take(kPage), Error);
}

}  // namespace
}  // namespace ferry
