// A rank that stops at any of its fabric calls: while it publishes its routing, between two messages, between a put and
// its signal, in combine, or before it says that it has summed. Every other rank must name it and nobody else, refuse
// all later calls, and go on without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <tuple>

#include "support/session.h"

namespace ferry::test {
namespace {

using conformance::RankRound;

constexpr Shape kShape{.ranks = 3, .experts = 5, .top_k = 2, .max_tokens = 3, .hidden = 32};
constexpr int kStopped = 1;
constexpr int kRoundsOfTheStopped = 3;  // the third waits for what the first used
// How the rounds combine. Late weights have a word and a wait of their own.
enum class Sums { by_rank, exact, with_late_weights };
constexpr std::array kNames{"by_rank", "exact", "late_weights"};
using Case = std::tuple<FakeKind, Sums>;

class StoppedRank : public testing::TestWithParam<Case> {
 public:
  static WaitRecord expect_missing(const std::function<void()>& call) {
    try {
      call();
    } catch (const PeerMissing& error) {
      EXPECT_EQ(error.record().missing_rank, kStopped) << error.what();
      return error.record();
    }
    ADD_FAILURE() << "the call returned, although rank " << kStopped << " has stopped";
    return {};
  }

 protected:
  StoppedRank() {
    SessionSettings settings;
    settings.shape = kShape;
    const Sums sums = std::get<1>(GetParam());
    settings.options = conformance::options_for("bf16", sums == Sums::exact ? Reduction::exact : Reduction::by_rank);
    settings.options.late_weights = sums == Sums::with_late_weights;
    settings.num_rounds = kRoundsOfTheStopped + 3;
    settings.abandons = 0;
    settings.routings = {"uniform", "ragged"};
    before_ = make_session(settings, 3);
    settings.options.mask.assign(static_cast<std::size_t>(kShape.ranks), false);
    settings.options.mask[kStopped] = true;
    after_ = make_session(settings, 4);
  }

  // Fabric calls of the rank in its rounds, when it does not stop.
  std::int64_t count_calls() {
    std::int64_t calls = 0;
    run_fake_ranks(kind(), kShape.ranks, 1, [&](FakeWorld& world) {
      world.may_stop();
      Exchange exchange(world, before_.shape, before_.options);
      for (int i = 0; i < kRoundsOfTheStopped; ++i)
        run_session_round(exchange, before_.rounds[static_cast<std::size_t>(i)]);
      if (world.rank() == kStopped) calls = world.stop_plan().calls();
    });
    return calls;
  }

  FakeKind kind() const { return std::get<0>(GetParam()); }

  static void expect_refused(Exchange& exchange, RankRound& round) {
    expect_missing([&] { exchange.dispatch(round.in, round.out); });
    expect_missing([&] { exchange.dispatch_async(round.in); });
    expect_missing([&] { exchange.dispatch_wait(round.out); });
    expect_missing([&] { exchange.combine(round.combine_in, round.combine_out); });
    expect_missing([&] { exchange.combine_async(round.combine_in); });
    expect_missing([&] { exchange.combine_wait(round.combine_out); });
  }

  void play(FakeWorld& world, std::int64_t stop_at) {
    world.may_stop();
    {
      Exchange exchange(world, before_.shape, before_.options);
      if (world.rank() == kStopped) world.stop_plan().stop_after(stop_at);
      bool broken = false;
      for (const SessionRound& round : before_.rounds) {
        RankRound mine(round.scenario, world.rank());
        const auto whole_round = [&] {
          exchange.dispatch(mine.in, mine.out);
          mine.check_rows();
          exchange.combine(mine.combine_in, mine.combine_out);
          mine.check_tokens();
        };
        if (world.rank() == kStopped) {
          whole_round();
          continue;
        }
        try {
          whole_round();
        } catch (const PeerMissing& error) {
          EXPECT_EQ(error.record().missing_rank, kStopped) << "stopped at call " << stop_at << ": " << error.what();
          expect_refused(exchange, mine);
          broken = true;
          break;
        }
      }
      EXPECT_TRUE(broken) << "stopped at call " << stop_at;
    }
    Exchange survivors(world, after_.shape, after_.options);
    for (int i = 0; i < 3; ++i) run_session_round(survivors, after_.rounds[static_cast<std::size_t>(i)]);
  }

  Session before_;
  Session after_;
};

TEST_P(StoppedRank, IsNamedByAllOthersWhereverItStops) {
  const std::int64_t calls = count_calls();
  ASSERT_GT(calls, 40);
  for (std::int64_t stop_at = 0; stop_at < calls && !HasFailure(); ++stop_at) {
    try {
      run_fake_ranks(kind(), kShape.ranks, static_cast<std::uint64_t>(stop_at),
                     [&](FakeWorld& world) { play(world, stop_at); });
    } catch (const std::exception& error) {
      FAIL() << "stopped at call " << stop_at << " of " << calls << ": " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, StoppedRank,
                         testing::Combine(testing::Values(FakeKind::direct, FakeKind::reordering),
                                          testing::Values(Sums::by_rank, Sums::exact, Sums::with_late_weights)),
                         [](const auto& each) {
                           return std::string(name_of(std::get<0>(each.param))) + "_" +
                                  kNames[static_cast<std::size_t>(std::get<1>(each.param))];
                         });

// An encoder that throws at its second token of the round that it is told to.
struct Throwing {
  static inline thread_local int tokens_left = -1;
  static int encode(InputRow row, int hidden, float, std::byte* payload, std::byte*) {
    if (tokens_left >= 0) {
      if (tokens_left-- == 0) throw std::runtime_error("this encoder cannot");
    }
    const auto bytes = static_cast<std::size_t>(hidden) * 2;
    std::copy_n(static_cast<const std::byte*>(row.data), bytes, payload);
    return 0;
  }
};

// A round that fails half sent cannot be called again: the others may have read a part of it.
TEST(FailedSend, EndsTheExchangeOnAllRanks) {
  static const FormatTable table{
      "throwing",        0,      0,
      ScaleLayout::none, 1,      [](int hidden) { return static_cast<std::size_t>(hidden) * 2; },
      Throwing::encode,  nullptr};
  SessionSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("bf16", Reduction::by_rank);
  settings.options.format = AnyFormat(table);
  settings.abandons = 0;
  settings.routings = {"uniform"};
  const Session session = make_session(settings, 8);
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering}) {
    run_fake_ranks(kind, kShape.ranks, 8, [&](FakeWorld& world) {
      Exchange exchange(world, session.shape, session.options);
      RankRound mine(session.rounds[1].scenario, world.rank());
      Throwing::tokens_left = -1;
      if (world.rank() == kStopped) {
        run_session_round(exchange, session.rounds[0]);
        Throwing::tokens_left = 1;
        EXPECT_THROW(exchange.dispatch(mine.in, mine.out), std::runtime_error);
        try {
          exchange.dispatch(mine.in, mine.out);
          ADD_FAILURE() << "a broken exchange took a call";
        } catch (const PeerMissing& error) {
          EXPECT_NE(std::string(error.what()).find("this rank failed in dispatch"), std::string::npos) << error.what();
        }
      } else {
        const WaitRecord record = StoppedRank::expect_missing([&] {
          run_session_round(exchange, session.rounds[0]);  // a slower rank may hear of it here
          exchange.dispatch(mine.in, mine.out);
        });
        EXPECT_EQ(record.reported_by, kStopped);
      }
    });
  }
}

// A router-weight hook is asked before anything is sent, so the same round can be called again.
TEST(FailedSend, CanBeRepeatedWhereNothingMoved) {
  SessionSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("bf16", Reduction::by_rank);
  settings.abandons = 0;
  const Session session = make_session(settings, 9);
  run_fake_ranks(FakeKind::reordering, kShape.ranks, 9, [&](FakeWorld& world) {
    Exchange exchange(world, session.shape, session.options);
    for (const SessionRound& round : session.rounds) {
      RankRound mine(round.scenario, world.rank());
      DispatchInput throwing = mine.in;
      throwing.topk_weights = {};
      throwing.router_weight = [](void*, int, int) -> float { throw std::runtime_error("this hook cannot"); };
      if (mine.in.tokens.shape[0] > 0) {
        try {
          exchange.dispatch_async(throwing);
        } catch (const std::runtime_error&) {
          run_session_round(exchange, round);
          continue;
        }
        ADD_FAILURE() << "rank " << world.rank() << ": no token asked for its weight";
      }
      run_session_round(exchange, round);
    }
  });
}

}  // namespace
}  // namespace ferry::test
