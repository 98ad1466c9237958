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

// A rank that left after routing 70000, message 70001 and result 69999, which only the low bits of the numbers tell.
TEST(AbortWord, OfARankThatLeftEndsWaitsForWhatItNeverSent) {
  for (const bool summed : {false, true}) {
    const Epoch word = left_word({70'000, 70'001, 69'999, summed}, 5);
    EXPECT_FALSE(ends_waits(word));
    EXPECT_EQ(rank_waited_for(word), 5);
    EXPECT_EQ(absence_of(word, 5), Absence::left);
    EXPECT_EQ(absence_of(word, 4), Absence::late);
    const auto last = [&](Phase phase) {
      if (phase == Phase::routing) return Epoch{70'000};
      if (phase == Phase::message || phase == Phase::dispatching) return Epoch{70'001};
      return phase == Phase::summed && summed ? Epoch{70'000} : Epoch{69'999};
    };
    for (const Phase phase : {Phase::routing, Phase::message, Phase::dispatching, Phase::result, Phase::summed}) {
      for (Epoch back = 0; back < 3; ++back) EXPECT_FALSE(never_comes(word, phase, last(phase) - back));
      for (Epoch on = 1; on < 4; ++on) EXPECT_TRUE(never_comes(word, phase, last(phase) + on)) << on;
    }
    EXPECT_FALSE(never_comes(word, Phase::none, 80'000));
  }
}

// The rank had begun combine 69999 and sent its weights; its results wait for those of the others.
TEST(AbortWord, OfARankThatLeftBeforeItsResultsEndsTheWaitForThem) {
  const Epoch word = left_word({70'000, 70'001, 69'999, false, true}, 5);
  EXPECT_FALSE(ends_waits(word));
  EXPECT_FALSE(never_comes(word, Phase::weights, 69'999));
  EXPECT_TRUE(never_comes(word, Phase::weights, 70'000));
  EXPECT_FALSE(never_comes(word, Phase::result, 69'998));
  EXPECT_TRUE(never_comes(word, Phase::result, 69'999));
  EXPECT_FALSE(never_comes(word, Phase::summed, 69'999));
  EXPECT_TRUE(never_comes(word, Phase::summed, 70'000));
}

TEST(AbortWord, OfARankThatAbortsEndsEveryWaitAndNamesIt) {
  const Epoch word = abort_word(0, false, 5) | kAborts;
  EXPECT_TRUE(ends_waits(word));
  EXPECT_FALSE(never_comes(word, Phase::result, 3));
  EXPECT_EQ(rank_waited_for(word), 5);
  EXPECT_EQ(absence_of(word, 5), Absence::aborted);
  EXPECT_EQ(absence_of(abort_word(7, false, 5), 5), Absence::late);  // it failed while it sent
  EXPECT_EQ(absence_of(abort_word(0, false, 2) | kAborts, 5), Absence::late);
}

TEST(FollowAbortWords, EndsAtTheRankThatNamesItself) {
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 2)}, {2, abort_word(0, false, 2) | kAborts}}), 2);
  EXPECT_EQ(follow(1, 0, 1, {{1, abort_word(5, false, 2)}, {2, left_word({}, 2)}}), 2);
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
