// RoundState: which call each stage of a round takes, and the sentence that a failed wait becomes.
#include "exchange/round_state.h"

#include <gtest/gtest.h>

#include <string>

namespace ferry {
namespace {

ErrorKind kind_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::io;
}

TEST(RoundState, TakesADispatchInEveryStageButAfterDispatchAsync) {
  RoundState state;
  for (const Stage stage : {Stage::closed, Stage::open, Stage::returning}) {
    state.stage = stage;
    EXPECT_NO_THROW(state.require_can_dispatch(0, "dispatch"));
  }
  state.stage = Stage::sent;
  EXPECT_EQ(kind_of([&] { state.require_can_dispatch(0, "dispatch"); }), ErrorKind::out_of_order);
}

TEST(RoundState, TakesOtherCallsInTheirStageOnly) {
  RoundState state;
  for (const Stage wanted : {Stage::sent, Stage::open, Stage::returning}) {
    for (const Stage stage : {Stage::closed, Stage::sent, Stage::open, Stage::returning}) {
      state.stage = stage;
      const auto call = [&] { state.require_stage(3, "combine_wait", wanted, "a combine_async"); };
      if (stage == wanted)
        EXPECT_NO_THROW(call());
      else
        EXPECT_EQ(kind_of(call), ErrorKind::out_of_order);
    }
  }
}

TEST(RoundState, RefusesEverythingOnceARankIsMissing) {
  RoundState state;
  state.stage = Stage::broken;
  state.broken_by.missing_rank = 5;
  EXPECT_EQ(kind_of([&] { state.require_not_broken(); }), ErrorKind::peer_missing);
  EXPECT_EQ(kind_of([&] { state.require_can_dispatch(0, "dispatch"); }), ErrorKind::peer_missing);
  EXPECT_EQ(kind_of([&] { state.require_stage(0, "combine", Stage::open, "a dispatch"); }), ErrorKind::peer_missing);
}

TEST(RoundState, NoRoundHasBeenSentOrGivenBackAtFirst) {
  const RoundState state;
  EXPECT_EQ(state.dispatched + 1, kFirstEpoch);
  EXPECT_EQ(state.combined + 1, kFirstEpoch);
}

TEST(Describe, NamesTheMissingRankAndWhoSaysSo) {
  WaitRecord record{Operation::dispatch, Phase::message, 0, 2, 0, 7, 3, 4};
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(describe(record), "rank 2 is missing"));
  EXPECT_TRUE(has(describe(record), "passed its deadline"));
  EXPECT_TRUE(has(describe(record), "waiting for a token 7 (epoch 3 seen, 4 wanted)"));
  record.block = 12;
  EXPECT_TRUE(has(describe(record), "waiting for a token 7 in block 12 (epoch 3 seen, 4 wanted)"));
  record.reported_by = 1;
  EXPECT_TRUE(has(describe(record), "rank 2 is missing, as rank 1 reports"));
  record.missing_rank = 0;
  EXPECT_TRUE(has(describe(record), "rank 1 gave up on this rank"));
  record.reported_by = 0;
  EXPECT_TRUE(has(describe(record), "this rank failed in dispatch"));
}

}  // namespace
}  // namespace ferry
