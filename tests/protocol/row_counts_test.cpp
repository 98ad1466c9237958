// Counts that the host waits for, outputs that hold what came and no more, and dispatches with more tokens than
// max_tokens, over every fabric of the tests.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/session.h"

namespace ferry::test {
namespace {

using conformance::RankRound;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kFewer = 4;  // sanitizers are slow: fewer seeds find what they look for
#else
constexpr int kFewer = 1;
#endif

class Counts : public testing::TestWithParam<FakeKind> {
 protected:
  // Runs `body` for each seed, and says which one failed.
  static void for_seeds(int seeds, const std::function<void(std::uint64_t)>& body) {
    for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(seeds / kFewer) && !HasFailure(); ++seed) {
      try {
        body(seed);
      } catch (const std::exception& error) {
        FAIL() << name_of(GetParam()) << ", seed " << seed << ": " << error.what();
      }
    }
  }
  static Session session_of(std::uint64_t seed) {
    Random random(seed);
    SessionSettings settings =
        draw_settings(random, seed % 2 == 0 ? "bf16" : "fp8_block128",
                      seed % 3 == 0 ? Reduction::exact : Reduction::by_rank, is_stepped(GetParam()) ? 1 : 2);
    settings.exact_rows = true;
    return make_session(settings, seed);
  }
};

// Some ranks ask and some do not, and some rounds are given up.
TEST_P(Counts, AreOfTheRowsThatCome) {
  for_seeds(24, [](std::uint64_t seed) {
    const Session session = session_of(seed);
    run_fake_ranks(GetParam(), session.shape.ranks, seed, [&](FakeWorld& world) {
      Exchange exchange(world, session.shape, session.options);
      for (const SessionRound& round : session.rounds) {
        if ((seed + static_cast<std::uint64_t>(world.rank())) % 3 == 0) {
          run_session_round(exchange, round);
          continue;
        }
        RankRound mine(round.scenario, world.rank());
        exchange.dispatch_async(mine.in);
        EXPECT_EQ(exchange.wait_for_counts().rows, mine.out.payload.shape[0]) << "seed " << seed;
        exchange.dispatch_wait(mine.out);
        mine.check_rows();
        if (round.fate == Fate::abandoned_returning) exchange.combine_async(mine.combine_in);
        if (round.fate != Fate::combined) continue;
        exchange.combine(mine.combine_in, mine.combine_out);
        mine.check_tokens();
      }
    });
  });
}

// Messages of a refused dispatch are on their way while it is refused; they disturb no later one.
TEST_P(Counts, OfTooManyTokensAreRefusedByEveryRankAndTheExchangeGoesOn) {
  for_seeds(12, [](std::uint64_t seed) {
    Session session = session_of(seed);
    session.rounds.resize(4);
    run_fake_ranks(GetParam(), session.shape.ranks, seed, [&](FakeWorld& world) {
      const int rank = world.rank(), most = session.shape.max_tokens, hidden = session.shape.hidden;
      Exchange exchange(world, session.shape, session.options);
      const std::vector<float> tokens(static_cast<std::size_t>((most + 3) * hidden));
      for (std::size_t i = 0; i < session.rounds.size(); ++i) {
        RankRound refused(session.rounds[i].scenario, rank);
        if (rank == static_cast<int>(i) % session.shape.ranks)
          refused.in.tokens = ConstTensor(tokens.data(), DType::f32, {most + 3, hidden});
        conformance::expect_error(rank, "too many tokens", ErrorKind::invalid_argument,
                                  {std::to_string(most + 3) + " rows", "max_tokens = "},
                                  [&] { exchange.dispatch(refused.in, refused.out); });
        refused.check_untouched();
        run_session_round(exchange, session.rounds[i]);
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Counts, testing::ValuesIn(all_fake_kinds().begin(), all_fake_kinds().end()),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

// A rank that stops somewhere in a dispatch is named by those that wait for its counts, or, if it sent them, by those
// that wait for its messages.
TEST(CountsOfAStoppedRank, AreMissed) {
  constexpr int kStopped = 1;
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 5, .hidden = 64};
  settings.options = conformance::options_for("bf16");
  settings.options.deadline = std::chrono::milliseconds(300);
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  for (int stop_at = 0; stop_at < 12; ++stop_at) {
    run_fake_ranks(FakeKind::reordering, settings.shape.ranks, 5, [&](FakeWorld& world) {
      world.may_stop();
      Exchange exchange(world, settings.shape, settings.options);
      RankRound round(scenario, world.rank());
      if (world.rank() == kStopped) world.stop_plan().stop_after(stop_at);
      exchange.dispatch_async(round.in);
      bool counted = false;
      try {
        exchange.wait_for_counts();
        counted = true;
        exchange.dispatch_wait(round.out);
        ADD_FAILURE() << "stopped at call " << stop_at << ", and nobody missed it";
      } catch (const PeerMissing& error) {
        EXPECT_EQ(error.record().missing_rank, kStopped) << error.what();
        EXPECT_TRUE(stop_at > 0 || !counted);
        EXPECT_THROW(exchange.wait_for_counts(), PeerMissing);
      }
    });
  }
}

// Rank 1 has too many tokens, and rank 0 stops somewhere in the same dispatch: rank 2 refuses the dispatch if all that
// rank 0 had for it is there, else it misses rank 0.
class RefusedCounts : public testing::TestWithParam<FakeKind> {};

TEST_P(RefusedCounts, WaitForTheMessagesThatAreOnTheirWay) {
  conformance::ScenarioSettings settings;
  settings.shape = {
      .ranks = 3, .experts = 3, .top_k = 3, .max_tokens = 4, .hidden = 32};  // every token names every rank
  settings.options = conformance::options_for("bf16");
  settings.routing = "uniform";
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  const std::vector<std::byte> tokens(static_cast<std::size_t>(9 * settings.shape.hidden) * 2);
  int refusals = 0, misses = 0;
  for (int stop_at = 0; refusals == 0 && stop_at < 100; ++stop_at) {
    std::ptrdiff_t sent = 0;
    bool refused = false;
    run_fake_ranks(GetParam(), settings.shape.ranks, 6, [&](FakeWorld& world) {
      world.may_stop();
      Exchange exchange(world, settings.shape, settings.options);
      RankRound round(scenario, world.rank());
      if (world.rank() == 1) round.in.tokens = ConstTensor(tokens.data(), DType::bf16, {9, settings.shape.hidden});
      if (world.rank() == 0) world.stop_plan().stop_after(stop_at);
      try {
        exchange.dispatch(round.in, round.out);
      } catch (const PeerMissing&) {
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
        if (world.rank() == 2) refused = true;
      } catch (const RankStopped&) {
      }
      if (world.rank() != 0) return;
      const auto signals = world.stop_plan().signals();
      sent = std::count_if(signals.begin(), signals.end(), [](const StopPlan::Signal& each) { return each.peer == 2; });
    });
    const bool has_all = sent == std::ptrdiff_t{1} + scenario.round.ranks[0].num_tokens;  // routing, and each message
    EXPECT_EQ(refused, has_all) << "stopped at call " << stop_at << ", " << sent << " signals sent";
    (refused ? refusals : misses) += 1;
  }
  EXPECT_EQ(refusals, 1);
  EXPECT_GT(misses, 4);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RefusedCounts, testing::Values(FakeKind::direct, FakeKind::reordering),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace ferry::test
