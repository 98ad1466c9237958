// Late weights over every fabric of the tests, and weights that go home: I24, I25.
#include <gtest/gtest.h>

#include <chrono>

#include "support/kept_handle.h"
#include "support/session.h"

namespace ferry::test {
namespace {

using conformance::Form;
using conformance::RankRound;
using conformance::Scenario;
using conformance::WeightsAt;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kFewer = 4;  // sanitizers are slow: fewer seeds find what they look for
#else
constexpr int kFewer = 1;
#endif

void run(FakeKind kind, std::uint64_t seed, const Session& session) {
  try {
    run_session_on(kind, seed, session);
  } catch (const std::exception& error) {
    FAIL() << name_of(kind) << ", seed " << seed << ": " << error.what() << "\n" << session.description();
  }
}

class LateWeights : public testing::TestWithParam<FakeKind> {};

// In each round each rank gives weights to dispatch or to combine; some rounds are given up.
TEST_P(LateWeights, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 40 / kFewer && !HasFailure(); ++seed) {
    Random random(seed);
    SessionSettings settings = draw_settings(random, "bf16", Reduction::by_rank, is_stepped(GetParam()) ? 1 : 2);
    settings.options.late_weights = true;
    settings.num_rounds = 8;
    if (seed % 3 == 0) {
      settings.options.fused_shared_expert = false;
      settings.options.row_orders = {RowOrder::by_source, RowOrder::by_expert, RowOrder::padded};
      settings.row_orders = {RowOrder::by_source, RowOrder::by_expert, RowOrder::padded};
    }
    run(GetParam(), seed, make_session(settings, seed));
  }
}

// I15, I24: replays that follow each other at once write their weights again and again. Rows by_source say them.
TEST_P(LateWeights, ReuseTheirBuffers) {
  conformance::ScenarioSettings settings =
      settings_of({.ranks = 3, .experts = 6, .top_k = 3, .max_tokens = 4, .hidden = 32}, "bf16", Reduction::by_rank);
  settings.options.late_weights = true;
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source};
  settings.row_orders = {RowOrder::by_source, RowOrder::by_source, RowOrder::by_expert};
  settings.more_outputs = true;  // row_weights are those that come with a replay
  std::vector<Scenario> weighed{make_scenario(settings)};
  for (std::uint64_t i = 1; i < 6; ++i) weighed.push_back(with_other_weights(weighed.back(), i));
  for (std::uint64_t seed = 1; seed <= 16 / kFewer && !HasFailure(); ++seed) {
    try {
      run_fake_ranks(GetParam(), 3, seed, [&](FakeWorld& world) {
        Exchange exchange(world, settings.shape, settings.options);
        Kept kept(exchange, weighed[0]);
        for (std::size_t turn = 0; turn < 20; ++turn) {
          RankRound round(weighed[turn % weighed.size()], world.rank());
          const ConstTensor weights = round.in.topk_weights;
          round.in = input_with(round, kept.handle);
          round.in.topk_weights = weights;
          round.out.handle = kept.handle.tensor();
          conformance::run_dispatch(exchange, round, turn % 2 == 0 ? Form::split : Form::one_call);
          round.check_rows();
          if (turn % 5 != 4) continue;
          round.combine_in.src_info = {};
          round.combine_in = combine_input_with(round, kept.handle);
          conformance::run_combine(exchange, round, Form::split);
          round.check_tokens();
        }
      });
    } catch (const std::exception& error) {
      FAIL() << name_of(GetParam()) << ", seed " << seed << ": " << error.what();
    }
  }
}

// I24: a combine that follows a combine writes weights into the memory of those before.
TEST_P(LateWeights, CombineAgainAndAgain) {
  conformance::ScenarioSettings settings =
      settings_of({.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 4, .hidden = 32}, "bf16", Reduction::by_rank);
  settings.options.late_weights = true;
  settings.weights_at = WeightsAt::combine;
  std::vector<Scenario> weighed{make_scenario(settings)};
  for (std::uint64_t i = 1; i < 5; ++i) weighed.push_back(with_other_weights(weighed.back(), i));
  for (std::uint64_t seed = 1; seed <= 8 / kFewer && !HasFailure(); ++seed) {
    try {
      run_fake_ranks(GetParam(), 4, seed, [&](FakeWorld& world) {
        Exchange exchange(world, settings.shape, settings.options);
        Kept kept(exchange, weighed[0]);
        for (std::size_t turn = 0; turn < 12; ++turn) {
          RankRound round(weighed[turn % weighed.size()], world.rank());
          round.combine_in.src_info = {};
          round.combine_in = combine_input_with(round, kept.handle);
          conformance::run_combine(exchange, round, turn % 3 == 0 ? Form::split : Form::one_call);
          round.check_tokens();
        }
      });
    } catch (const std::exception& error) {
      FAIL() << name_of(GetParam()) << ", seed " << seed << ": " << error.what();
    }
  }
}

class ReturnedWeights : public testing::TestWithParam<FakeKind> {};

TEST_P(ReturnedWeights, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 40 / kFewer && !HasFailure(); ++seed) {
    Random random(seed);
    const Reduction reduction = seed % 3 == 0 ? Reduction::exact : Reduction::by_rank;
    SessionSettings settings = draw_settings(random, "bf16", reduction, is_stepped(GetParam()) ? 1 : 2);
    settings.options.returns_weights = true;
    settings.options.late_weights = seed % 3 == 1 && seed % 2 == 0;
    settings.num_rounds = 8;
    if (seed % 3 == 1 && !settings.options.late_weights) {
      settings.options.fused_shared_expert = false;
      settings.options.row_orders = {RowOrder::by_source, RowOrder::by_expert, RowOrder::padded};
      settings.row_orders = {RowOrder::by_source, RowOrder::by_expert, RowOrder::padded};
    }
    run(GetParam(), seed, make_session(settings, seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, ReturnedWeights,
                         testing::Values(FakeKind::direct, FakeKind::reordering, FakeKind::reordering_nodes,
                                         FakeKind::stepped, FakeKind::stepped_late, FakeKind::stepped_lagging),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

INSTANTIATE_TEST_SUITE_P(Fabrics, LateWeights,
                         testing::Values(FakeKind::direct, FakeKind::reordering, FakeKind::reordering_nodes,
                                         FakeKind::stepped, FakeKind::stepped_late, FakeKind::stepped_lagging),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

// I10: a rank that leaves between the halves of a combine has sent its weights, and none of its results.
TEST(LateWeightsOfALeftRank, EndTheWaitForItsResults) {
  conformance::ScenarioSettings settings = settings_of(kShape, "bf16", Reduction::by_rank);
  settings.options.late_weights = true;
  settings.weights_at = WeightsAt::combine;
  const Scenario scenario = make_scenario(settings);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 3, [&](FakeWorld& world) {
    Exchange exchange(world, kShape, settings.options);
    RankRound round(scenario, world.rank());
    conformance::run_dispatch(exchange, round, Form::one_call);
    exchange.combine_async(round.combine_in);
    if (world.rank() == 1) return;
    const auto begin = std::chrono::steady_clock::now();
    try {
      exchange.combine_wait(round.combine_out);
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
    } catch (const PeerMissing& missing) {
      EXPECT_EQ(missing.record().missing_rank, 1) << missing.what();
      EXPECT_EQ(missing.record().absence, Absence::left) << missing.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, settings.options.deadline / 2);  // not at the deadline
  });
}

}  // namespace
}  // namespace ferry::test
