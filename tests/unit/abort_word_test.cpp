// Abort words, and the way from the rank that was named first to the one that is missing.
#include "ferry/detail/layout/abort_word.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

namespace ferry {
namespace {

int follow(int named, int rank, int waited_for, const std::map<int, Epoch>& words) {
  return follow_abort_words(named, rank, waited_for, 6, [&](int suspect) {
    const auto found = words.find(suspect);
    return found == words.end() ? Epoch{0} : found->second;
  });
}

TEST(AbortWord, HoldsEpochAndRankAndWhetherItWasTold) {
  const Epoch own = abort_word(1'234'567, false, 4);
  const Epoch relayed = abort_word(1'234'567, true, 4);
  EXPECT_EQ(own >> 16, 1'234'567u);
  EXPECT_EQ(relayed >> 16, 1'234'567u);
  EXPECT_EQ(rank_waited_for(own), 4);
  EXPECT_EQ(rank_waited_for(relayed), 4);
  EXPECT_TRUE(ends_waits(own));
  EXPECT_FALSE(ends_waits(relayed));
  EXPECT_FALSE(ends_waits(0));
  EXPECT_EQ(rank_waited_for(abort_word(2, true, 2047)), 2047);
}

TEST(FollowAbortWords, EndsAtTheRankThatSaysNothing) {
  EXPECT_EQ(follow(3, 0, 3, {}), 3);
  // 0 was relayed of 1, which waited for 2, which waited for 3; 3 is gone.
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 2)}, {2, abort_word(5, true, 3)}}), 3);
}

TEST(FollowAbortWords, GoesOnFromTheRankItself) {
  // 1 named 0, which itself waited for 4.
  EXPECT_EQ(follow(0, 0, 4, {{1, abort_word(5, false, 0)}}), 4);
}

TEST(FollowAbortWords, BelievesTheFirstWhereTheyWaitForEachOther) {
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 2)}, {2, abort_word(5, true, 1)}}), 1);
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 0)}}), 1);
}

TEST(FollowAbortWords, TakesNoRankOutOfRange) { EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 99)}}), 1); }

TEST(FirstAbort, PassesOverThoseWhoWereToldAndThoseWhoseWordCountsForNothing) {
  const auto first_of = [](const std::map<int, Epoch>& words) {
    return first_abort(6, [&](int rank) { return words.contains(rank) ? words.at(rank) : Epoch{0}; });
  };
  EXPECT_TRUE(first_of({}).nobody());
  EXPECT_TRUE(first_of({{1, abort_word(5, true, 2)}}).nobody());
  const FirstAbort first = first_of({{1, abort_word(5, true, 2)}, {3, abort_word(5, false, 4)}});
  EXPECT_FALSE(first.nobody());
  EXPECT_EQ(first.reported_by, 3);
  EXPECT_EQ(first.waited_for, 4);
}

// Four ranks, of which the last is missing; what Waiter::fail and HostWaits do, one rank after another.
struct Survivors {
  static constexpr int kRanks = 4;
  static constexpr int kMissing = 3;
  std::array<int, kMissing> waits_for{};
  std::array<Epoch, kRanks> words{};
  std::array<int, kMissing> named{};

  bool all_waits_lead_to_the_missing() const {
    for (int rank : waits_for) {
      int steps = 0;
      for (; rank != kMissing && steps < kRanks; ++steps) rank = waits_for[static_cast<std::size_t>(rank)];
      if (rank != kMissing) return false;
    }
    return true;
  }
  void give_up(int rank, bool relayed) {
    const int waited_for = waits_for[static_cast<std::size_t>(rank)];
    const FirstAbort first =
        first_abort(relayed ? kRanks : 0, [this](int peer) { return words[static_cast<std::size_t>(peer)]; });
    named[static_cast<std::size_t>(rank)] = first.nobody() ? waited_for : first.waited_for;
    words[static_cast<std::size_t>(rank)] = abort_word(7, relayed, waited_for);
  }
  int culprit(int rank) const {
    return follow_abort_words(named[static_cast<std::size_t>(rank)], rank, waits_for[static_cast<std::size_t>(rank)],
                              kRanks, [this](int suspect) { return words[static_cast<std::size_t>(suspect)]; });
  }
};

TEST(AbortWords, LeadEverySurvivorToTheMissingRankInWhateverOrderTheyGiveUp) {
  int graphs = 0;
  for (int graph = 0; graph < 4 * 4 * 4; ++graph) {
    Survivors ranks;
    ranks.waits_for = {graph % 4, graph / 4 % 4, graph / 16};
    if (!ranks.all_waits_lead_to_the_missing()) continue;
    ++graphs;
    std::array<int, 3> order{0, 1, 2};
    do {
      for (int relayed = 0; relayed < 4; ++relayed) {  // which of the later two gave up because another had
        Survivors after = ranks;
        for (int turn = 0; turn < 3; ++turn)
          after.give_up(order[static_cast<std::size_t>(turn)], turn > 0 && (relayed >> (turn - 1) & 1) != 0);
        for (int rank = 0; rank < 3; ++rank)
          EXPECT_EQ(after.culprit(rank), Survivors::kMissing)
              << "graph " << graph << ", first " << order[0] << ", relayed " << relayed << ", rank " << rank;
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_EQ(graphs, 16);  // trees of four ranks
}

}  // namespace
}  // namespace ferry
