// The one loop that spins: what ends it, and what a rank remembers of a wait that failed.
#include "ferry/detail/base/wait.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cpu/fabric/host_waits.h"

namespace ferry {
namespace {

// Answers from a list, and then that the deadline has passed.
struct ScriptedPacer {
  std::vector<Pace> paces;
  SignalWord* word = nullptr;
  Epoch value = 0;
  std::size_t turns = 0;
  Pace pause() {
    if (word != nullptr && turns == paces.size()) store_release(*word, value);
    return turns < paces.size() ? paces[turns++] : Pace::expired;
  }
};
const auto kNever = [] { return false; };
const auto kAlways = [] { return true; };

TEST(Wait, ComparesWithAtLeast) {
  SignalWord word{7};
  ScriptedPacer pacer;
  EXPECT_EQ(wait_at_least(word, 7, kAlways, pacer), Waited::arrived);
  EXPECT_EQ(wait_at_least(word, 3, kAlways, pacer), Waited::arrived);  // a newer epoch says that the older one came
  EXPECT_EQ(wait_at_least(word, 8, kNever, pacer), Waited::expired);
}

TEST(Wait, LooksForAnAbortOnlyWhenThePacerSaysSo) {
  SignalWord word;
  int asked = 0;
  const auto count = [&asked] { return ++asked > 1; };
  ScriptedPacer pacer{{Pace::again, Pace::again, Pace::look_for_abort, Pace::again, Pace::look_for_abort}};
  EXPECT_EQ(wait_at_least(word, 1, count, pacer), Waited::aborted);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(pacer.turns, 5u);
}

TEST(Wait, ASignalBeatsADeadlineAndAnAbort) {
  SignalWord word;
  ScriptedPacer late{{Pace::again}, &word, 4};
  EXPECT_EQ(wait_at_least(word, 4, kNever, late), Waited::arrived);
  word.raw = 0;
  ScriptedPacer aborted{{}, &word, 4};
  EXPECT_EQ(wait_at_least(word, 4, kAlways, aborted), Waited::arrived);
}

// HostWaits over words that no fabric writes.
struct WaitingRank {
  explicit WaitingRank(int rank) : abort_words(3), masked(3), waits(rank, 3, abort_words.data(), masked.data()) {
    waits.set_deadline(std::chrono::milliseconds(20));
  }
  static WaitSite site(int peer) { return {Operation::combine, Phase::result, peer, 1}; }
  bool wait_for(int peer) { return waits.wait(word, 9, site(peer)); }
  // The signal comes after one look at the abort words.
  bool look_and_wait_for(int peer) {
    ScriptedPacer pacer{{Pace::look_for_abort}, &word, 9};
    return waits.wait(word, 9, site(peer), pacer);
  }
  SignalWord word;
  std::vector<SignalWord> abort_words;
  std::vector<std::uint8_t> masked;
  cpu::HostWaits waits;
};
constexpr Epoch gave_up_on(int rank) { return Epoch{9} << 16 | static_cast<Epoch>(rank + 1); }
constexpr Epoch was_told_waiting_for(int rank) { return gave_up_on(rank) | Epoch{1} << 15; }

TEST(HostWaits, ADeadlineNamesThePeerOfTheWait) {
  WaitingRank rank(0);
  EXPECT_FALSE(rank.wait_for(2));
  EXPECT_EQ(rank.waits.abort_value(), gave_up_on(2));
  EXPECT_EQ(rank.waits.find_culprit(), 2);
  store_release(rank.word, Epoch{9});
  EXPECT_FALSE(rank.wait_for(2)) << "after a failure every wait fails";
  EXPECT_GT(rank.waits.waited_ns(2), 0u);
}

// I10: rank 1, which rank 0 waited for, itself waited for rank 2.
TEST(HostWaits, FollowsThoseWhoWaitToTheOneThatIsMissing) {
  WaitingRank rank(0);
  store_release(rank.abort_words[1], was_told_waiting_for(2));
  EXPECT_FALSE(rank.wait_for(1));
  EXPECT_EQ(rank.waits.failure().reported_by, 0);
  EXPECT_EQ(rank.waits.find_culprit(), 2);
}

TEST(HostWaits, AVictimSaysWhomItWaitedFor) {
  WaitingRank rank(1);
  store_release(rank.abort_words[0], gave_up_on(1));  // rank 0 gave up on this rank, which waits for rank 2
  EXPECT_FALSE(rank.wait_for(2));
  EXPECT_EQ(rank.waits.failure().reported_by, 0);
  EXPECT_EQ(rank.waits.abort_value(), was_told_waiting_for(2));
  EXPECT_EQ(rank.waits.find_culprit(), 2);
}

TEST(HostWaits, RanksThatWaitForEachOtherBelieveTheFirst) {
  WaitingRank rank(1);
  store_release(rank.abort_words[0], gave_up_on(1));  // this rank came too late: it waits for rank 0, which gave up
  EXPECT_FALSE(rank.wait_for(0));
  EXPECT_EQ(rank.waits.find_culprit(), 1);
}

TEST(HostWaits, ARankThatWasOnlyToldEndsNoWait) {
  WaitingRank rank(0);
  store_release(rank.abort_words[1], was_told_waiting_for(2));
  EXPECT_TRUE(rank.look_and_wait_for(1));
}

TEST(HostWaits, ARankThatGaveUpEndsEveryWait) {
  WaitingRank rank(0);
  store_release(rank.abort_words[1], gave_up_on(2));
  EXPECT_FALSE(rank.look_and_wait_for(1));
}

// Workers of a rank fail one after another.
TEST(HostWaits, TheFirstFailureIsTheOneThatIsTold) {
  WaitingRank rank(0);
  EXPECT_FALSE(rank.wait_for(1));
  EXPECT_FALSE(rank.wait_for(2));
  EXPECT_EQ(rank.waits.failure().missing_rank, 1);
  EXPECT_EQ(rank.waits.abort_value(), gave_up_on(1));
}

// I11
TEST(HostWaits, WordsOfMaskedRanksCountForNothing) {
  WaitingRank rank(0);
  rank.masked[1] = 1;
  store_release(rank.abort_words[1], gave_up_on(2));
  EXPECT_TRUE(rank.look_and_wait_for(2));
  store_release(rank.word, Epoch{0});
  EXPECT_FALSE(rank.wait_for(2));
  EXPECT_EQ(rank.waits.failure().reported_by, 0) << "its own deadline ended the wait";
}

TEST(HostWaits, ASignalFromAnotherThreadEndsTheWait) {
  WaitingRank rank(0);
  rank.waits.set_deadline(std::chrono::milliseconds(20'000));
  int seen = 0;
  int data = 0;
  std::thread signaller([&] {
    data = 41;
    store_release(rank.word, Epoch{9});
  });
  EXPECT_TRUE(rank.wait_for(1));
  seen = data;
  signaller.join();
  EXPECT_EQ(seen, 41);
}

}  // namespace
}  // namespace ferry
