// CallOrder: every call in every state against the rules of a round, and the sentence that a failed wait becomes.
#include "exchange/calls/call_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "exchange/log/wait_report.h"
#include "ferry/exchange.h"

namespace ferry {
namespace {

// Those without a handle.
constexpr Call kAllCalls[] = {Call::dispatch_async, Call::wait_for_counts, Call::dispatch_wait, Call::dispatch,
                              Call::combine_async,  Call::combine_wait,    Call::combine};

// The rules of a round, written down once more: which of its stages takes which call.
enum class Stage { closed, sent, open, returning };

struct Outcome {
  std::string refused;  // empty: the call is allowed
  Stage after;
};

Outcome outcome_of(Stage stage, Call call) {
  const auto in = [&](Stage wanted, const std::string& name, const char* before, Stage after) -> Outcome {
    if (stage == wanted) return {"", after};
    return {"rank 0: " + name + ": it must follow " + before + " of the same round", stage};
  };
  const auto anywhere_but_sent = [&](const std::string& name, Stage after) -> Outcome {
    if (stage != Stage::sent) return {"", after};
    return {"rank 0: " + name + ": the last dispatch_async has had no dispatch_wait; call that first", stage};
  };
  switch (call) {
    case Call::dispatch_async:
      return anywhere_but_sent("dispatch_async", Stage::sent);
    case Call::dispatch:
      return anywhere_but_sent("dispatch", Stage::open);
    case Call::wait_for_counts:
      if (stage == Stage::sent) return {"", Stage::sent};
      return {"rank 0: wait_for_counts: it must come between a dispatch_async and its dispatch_wait", stage};
    case Call::dispatch_wait:
      return in(Stage::sent, "dispatch_wait", "a dispatch_async", Stage::open);
    case Call::combine_async:
      return in(Stage::open, "combine_async", "a dispatch", Stage::returning);
    case Call::combine:
      return in(Stage::open, "combine", "a dispatch", Stage::closed);
    case Call::combine_wait:
      return in(Stage::returning, "combine_wait", "a combine_async", Stage::closed);
    default:
      break;
  }
  return {"no such call", stage};
}

// What `call` throws where it is not allowed; empty where it is.
std::string refusal(const CallOrder& order, Call call) {
  try {
    order.require_allowed(0, call);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_order);
    return error.what();
  }
}

void make(CallOrder& order, Call call) {
  if (call == Call::dispatch_async || call == Call::dispatch)
    order.begin_dispatch(call, order.next_dispatch());
  else if (call == Call::combine_async || call == Call::combine)
    order.begin_combine(call, order.next_combine());
  else if (call == Call::kept_combine_async || call == Call::kept_combine)
    order.begin_combine(call, order.next_kept_combine());
  else
    order.advance(call);
}

// All sequences of allowed calls: each state is visited once, and tries every call.
TEST(CallOrder, FollowsTheRulesOfARoundInEveryState) {
  struct State {
    CallOrder order;
    Stage stage;
  };
  std::set<std::vector<int>> visited;
  std::vector<State> waiting{{CallOrder(), Stage::closed}};
  while (!waiting.empty()) {
    const State state = waiting.back();
    waiting.pop_back();
    const std::vector<int> key{static_cast<int>(state.order.dispatch()), static_cast<int>(state.order.combine()),
                               static_cast<int>(state.stage)};
    if (!visited.insert(key).second) continue;
    for (const Call call : kAllCalls) {
      const Outcome wanted = outcome_of(state.stage, call);
      EXPECT_EQ(refusal(state.order, call), wanted.refused) << "stage " << key[2];
      if (!wanted.refused.empty()) continue;
      State next{state.order, wanted.after};
      make(next.order, call);
      waiting.push_back(next);
    }
  }
  EXPECT_EQ(visited.size(), 5u);  // closed twice: before the first dispatch and after a combine
}

TEST(CallOrder, ADispatchInHalvesEndsWhereAWholeOneDoes) {
  for (const bool combines : {false, true}) {
    CallOrder halves;
    make(halves, Call::dispatch_async);
    make(halves, Call::dispatch_wait);
    CallOrder whole;
    make(whole, Call::dispatch);
    if (combines) {
      make(halves, Call::combine_async);
      make(halves, Call::combine_wait);
      make(whole, Call::combine);
    }
    EXPECT_EQ(halves.dispatch(), whole.dispatch());
    EXPECT_EQ(halves.combine(), whole.combine());
    EXPECT_EQ(halves.dispatch_ticket().message, whole.dispatch_ticket().message);
    EXPECT_EQ(halves.combine_ticket().message, whole.combine_ticket().message);
    EXPECT_EQ(halves.combine_ticket().result, whole.combine_ticket().result);
  }
}

TEST(CallOrder, ACombineHasTheTicketOfItsDispatch) {
  CallOrder order;
  const auto begin = [&order](Call call, int num_tokens) {
    Ticket ticket = order.next_dispatch();
    ticket.num_tokens = num_tokens;
    order.begin_dispatch(call, ticket);
  };
  begin(Call::dispatch, 5);
  EXPECT_EQ(order.dispatch_ticket().message, kFirstEpoch);
  make(order, Call::combine_async);
  EXPECT_EQ(order.combine_ticket().message, kFirstEpoch);
  EXPECT_EQ(order.combine_ticket().num_tokens, 5);
  begin(Call::dispatch, 7);
  EXPECT_EQ(order.combine_ticket().num_tokens, 5);
  make(order, Call::combine);
  EXPECT_EQ(order.combine_ticket().num_tokens, 7);
}

// I13: each counter counts its own: a dispatch whose combine is left out takes no number of the combines.
TEST(CallOrder, NumbersEachOperationByItself) {
  CallOrder order;
  for (const Call call : {Call::dispatch, Call::dispatch, Call::combine, Call::dispatch, Call::combine})
    make(order, call);
  EXPECT_EQ(order.dispatch_ticket().routing, kFirstEpoch + 2);
  EXPECT_EQ(order.dispatch_ticket().message, kFirstEpoch + 2);
  EXPECT_EQ(order.combine_ticket().routing, kFirstEpoch + 2);
  EXPECT_EQ(order.combine_ticket().result, kFirstEpoch + 1);
}

// A dispatch and a kept combine in every order of their halves.
TEST(CallOrder, ADispatchAndAKeptCombineInterleave) {
  std::vector<Call> calls{Call::dispatch_async, Call::dispatch_wait, Call::kept_combine_async, Call::kept_combine_wait};
  const auto place = [&](Call call) { return std::find(calls.begin(), calls.end(), call); };
  std::sort(calls.begin(), calls.end());
  int orders = 0;
  do {
    if (place(Call::dispatch_async) > place(Call::dispatch_wait)) continue;
    if (place(Call::kept_combine_async) > place(Call::kept_combine_wait)) continue;
    ++orders;
    CallOrder order;
    make(order, Call::dispatch);
    for (const Call call : calls) {
      EXPECT_EQ(refusal(order, call), "");
      make(order, call);
    }
    EXPECT_EQ(refusal(order, Call::combine), "");  // of the newest dispatch
    EXPECT_EQ(order.dispatch_ticket().message, kFirstEpoch + 1);
    EXPECT_EQ(order.combine_ticket().result, kFirstEpoch);
  } while (std::next_permutation(calls.begin(), calls.end()));
  EXPECT_EQ(orders, 6);
}

// What the ranks gave did not fit together: its rows are none, so no combine of it, but the combine of a handle goes
// on.
TEST(CallOrder, ADispatchThatIsGivenUpIsFollowedByAnother) {
  CallOrder order;
  order.begin_dispatch(Call::dispatch_async, order.next_dispatch(false));
  order.begin_combine(Call::kept_combine_async, order.next_kept_combine());
  order.give_up_dispatch(false);
  EXPECT_EQ(order.dispatch(), Progress::none);
  EXPECT_EQ(order.half_combined(), Call::kept_combine_wait);
  EXPECT_THROW(order.require_allowed(0, Call::dispatch_wait), Error);
  EXPECT_NO_THROW(order.require_allowed(0, order.half_combined()));
  order.advance(order.half_combined());
  EXPECT_THROW(order.require_allowed(0, Call::combine), Error);
  EXPECT_NO_THROW(order.require_allowed(0, Call::dispatch));
  EXPECT_EQ(order.next_dispatch(false).message, order.dispatch_ticket().message + 1);
}

// It was found out late: a combine that came after it is given up, too, with a handle or without.
TEST(CallOrder, ADispatchThatIsGivenUpLateTakesCombinesWithIt) {
  CallOrder order;
  make(order, Call::dispatch);
  make(order, Call::combine_async);
  order.give_up_dispatch(false);
  EXPECT_NE(refusal(order, Call::combine_wait), "");
  EXPECT_EQ(refusal(order, Call::kept_combine), "");
  make(order, Call::kept_combine_async);
  order.give_up_dispatch(true);
  EXPECT_FALSE(order.is_open());
  EXPECT_EQ(refusal(order, Call::kept_combine), "");
  EXPECT_EQ(refusal(order, Call::dispatch), "");
}

TEST(CallOrder, OneCombineMayBeHalfDone) {
  const std::string half = ": the last combine_async has had no combine_wait; call that first";
  CallOrder order;
  make(order, Call::dispatch);
  make(order, Call::kept_combine_async);
  EXPECT_EQ(refusal(order, Call::combine), "rank 0: combine" + half);
  EXPECT_EQ(refusal(order, Call::combine_async), "rank 0: combine_async" + half);
  EXPECT_EQ(refusal(order, Call::kept_combine), "rank 0: combine" + half);
  EXPECT_EQ(order.half_combined(), Call::kept_combine_wait);
  make(order, Call::dispatch);  // gives up no kept combine
  EXPECT_EQ(refusal(order, Call::kept_combine_async), "rank 0: combine_async" + half);
  make(order, Call::kept_combine_wait);
  make(order, Call::combine_async);
  EXPECT_EQ(refusal(order, Call::kept_combine), "rank 0: combine" + half);
  EXPECT_EQ(order.half_combined(), Call::combine_wait);
  make(order, Call::dispatch);  // gives up the other
  EXPECT_EQ(refusal(order, Call::kept_combine), "");
}

TEST(CallOrder, AReplayTakesNoNumberOfTheRoutings) {
  CallOrder order;
  make(order, Call::dispatch);
  Ticket replay = order.next_dispatch(true);
  std::byte handle{};
  replay.handle = &handle;
  order.begin_dispatch(Call::dispatch, replay);
  EXPECT_EQ(order.dispatch_ticket().routing, kFirstEpoch);
  EXPECT_EQ(order.dispatch_ticket().message, kFirstEpoch + 1);
  EXPECT_EQ(refusal(order, Call::combine),
            "rank 0: combine: the newest dispatch was given a handle; give it to this call, too");
  make(order, Call::dispatch);
  EXPECT_EQ(order.dispatch_ticket().routing, kFirstEpoch + 1);
  EXPECT_EQ(order.dispatch_ticket().message, kFirstEpoch + 2);
}

void call(Exchange& exchange, const conformance::RankRound& round, Call which) {
  switch (which) {
    case Call::dispatch_async:
      return exchange.dispatch_async(round.in);
    case Call::wait_for_counts:
      exchange.wait_for_counts();
      return;
    case Call::dispatch_wait:
      return exchange.dispatch_wait(round.out);
    case Call::dispatch:
      return exchange.dispatch(round.in, round.out);
    case Call::combine_async:
      return exchange.combine_async(round.combine_in);
    case Call::combine_wait:
      return exchange.combine_wait(round.combine_out);
    case Call::combine:
      return exchange.combine(round.combine_in, round.combine_out);
    default:
      FAIL() << "a call with a handle";
  }
}

// Every sequence of four calls on one exchange after the other: a refused call changes nothing.
TEST(CallOrder, IsWhatAnExchangeAllows) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 3, .hidden = 32};
  settings.options = conformance::options_for("bf16");
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  constexpr int kPlain = static_cast<int>(std::size(kAllCalls));
  constexpr int kSequences = kPlain * kPlain * kPlain * kPlain;
  run_ranks(1, [&](World& world) {
    const conformance::RankRound round(scenario, 0);
    for (int sequence = 0; sequence < kSequences; ++sequence) {
      Exchange exchange(world, settings.shape, settings.options);
      Stage stage = Stage::closed;
      for (int left = sequence, i = 0; i < 4; ++i, left /= kPlain) {
        const Call which = kAllCalls[left % kPlain];
        const Outcome wanted = outcome_of(stage, which);
        std::string refused;
        try {
          call(exchange, round, which);
        } catch (const Error& error) {
          refused = error.what();
        }
        ASSERT_EQ(refused, wanted.refused) << "sequence " << sequence << ", call " << i;
        stage = wanted.after;
      }
    }
  });
}

std::string refusal(const std::function<void()>& check) {
  try {
    check();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_order);
    return error.what();
  }
}

TEST(CallOrder, LetsReleaseComeWhereNothingIsHalfDone) {
  for (const Call half : {Call::dispatch_async, Call::combine_async, Call::kept_combine_async}) {
    CallOrder order;
    EXPECT_EQ(refusal([&] { order.require_may_release(0); }), "");
    if (half == Call::combine_async) order.begin_dispatch(Call::dispatch, order.next_dispatch());
    order.advance(half);
    const char* const wait = half == Call::dispatch_async ? "dispatch_wait" : "combine_wait";
    EXPECT_NE(refusal([&] { order.require_may_release(0); }).find(wait), std::string::npos);
    order.advance(half == Call::dispatch_async  ? Call::dispatch_wait
                  : half == Call::combine_async ? Call::combine_wait
                                                : Call::kept_combine_wait);
    EXPECT_EQ(refusal([&] { order.require_may_release(0); }), "");
  }
}

TEST(CallOrder, LetsNothingButRestoreFollowRelease) {
  CallOrder order;
  EXPECT_NE(refusal([&] { order.require_may_restore(3); }).find("rank 3: restore"), std::string::npos);
  order.set_released(true);
  EXPECT_EQ(refusal([&] { order.require_may_restore(3); }), "");
  for (int call = 0; call < kCalls; ++call)
    EXPECT_NE(refusal([&] { order.require_allowed(3, static_cast<Call>(call)); }).find("call restore()"),
              std::string::npos);
  EXPECT_NE(refusal([&] { order.require_may_release(3); }).find("call restore()"), std::string::npos);
}

TEST(CallOrder, LetsNothingComeWhereAnotherExchangeHasTheMemory) {
  CallOrder order;
  order.set_without_memory(true);
  const auto refuses = [](const std::string& text) { return text.find("call take_memory()") != std::string::npos; };
  for (int call = 0; call < kCalls; ++call)
    EXPECT_TRUE(refuses(refusal([&] { order.require_allowed(3, static_cast<Call>(call)); })));
  EXPECT_TRUE(refuses(refusal([&] { order.require_may_release(3); })));
  EXPECT_TRUE(refuses(refusal([&] { order.require_may_restore(3); })));
  order.set_without_memory(false);
  EXPECT_EQ(refusal([&] { order.require_may_release(3); }), "");
}

TEST(Describe, NamesTheMissingRankAndWhoSaysSo) {
  WaitRecord record{Operation::dispatch, Phase::message, 0, 2, 0, 7, 3, 4};
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(describe(record), "rank 2 is missing"));
  EXPECT_TRUE(has(describe(record), "passed its deadline"));
  EXPECT_TRUE(has(describe(record), "waiting for token 7. Make"));
  record.block = 12;
  EXPECT_TRUE(has(describe(record), "waiting for token 7 in block 12. Make"));
  EXPECT_FALSE(has(describe(record), "epoch"));
  record.reported_by = 1;
  EXPECT_TRUE(has(describe(record), "rank 2 is missing, as rank 1 reports"));
  record.missing_rank = 0;
  EXPECT_TRUE(has(describe(record), "rank 1 gave up on this rank"));
  record.reported_by = 0;
  EXPECT_TRUE(has(describe(record), "dispatch passed its deadline waiting for token 7 in block 12, which this rank"));
  record.phase = Phase::none;
  EXPECT_TRUE(has(describe(record), "this rank failed in dispatch"));
}

}  // namespace
}  // namespace ferry
