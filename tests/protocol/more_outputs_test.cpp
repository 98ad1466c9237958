// Outputs that may be left out, and rows for which there is no room, over every fabric of the tests.
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

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

class MoreOutputs : public testing::TestWithParam<FakeKind> {};

// Each rank draws an order for each round; in every other round its outputs have room for a part of the rows.
TEST_P(MoreOutputs, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 24 / kFewer && !HasFailure(); ++seed) {
    Random random(seed);
    SessionSettings settings = draw_settings(random, seed % 2 == 0 ? "bf16" : "fp8_block128", Reduction::by_rank,
                                             is_stepped(GetParam()) ? 1 : 2);
    settings.options.fused_shared_expert = false;
    settings.options.row_orders = kAllOrders;
    settings.row_orders = {RowOrder::by_source, RowOrder::padded, RowOrder::in_place, RowOrder::by_expert};
    settings.more_outputs = true;
    const Session session = make_session(settings, seed);
    try {
      run_session_on(GetParam(), seed, session);
    } catch (const std::exception& error) {
      FAIL() << name_of(GetParam()) << ", seed " << seed << ": " << error.what() << "\n" << session.description();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, MoreOutputs, testing::ValuesIn(all_fake_kinds().begin(), all_fake_kinds().end()),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

// I1: rank 0 stops somewhere in a dispatch, and rank 2 has room for no row. Its dispatch ends only if all that rank 0
// had for it has come.
TEST(RowsWithoutRoom, AreAwaitedAsAllOthers) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place}) {
    conformance::ScenarioSettings settings;
    settings.shape = {
        .ranks = 3, .experts = 3, .top_k = 3, .max_tokens = 4, .hidden = 32};  // every token names every rank
    settings.options = conformance::options_for("bf16");
    settings.options.deadline = std::chrono::milliseconds(200);
    settings.options.row_orders = kAllOrders;
    settings.row_orders = {order};
    settings.routing = "uniform";
    settings.overflow = Overflow::expected;
    settings.room_percent = 0;
    settings.expert_stride = 1;
    settings.spare_rows = 0;
    const conformance::Scenario scenario = conformance::make_scenario(settings);
    int ended = 0, missed = 0;
    for (int stop_at = 0; ended == 0 && stop_at < 100; ++stop_at) {
      std::ptrdiff_t sent = 0;
      bool ends = false;
      run_fake_ranks(FakeKind::direct, settings.shape.ranks, 6, [&](FakeWorld& world) {
        world.may_stop();
        Exchange exchange(world, settings.shape, settings.options);
        RankRound round(scenario, world.rank());
        if (world.rank() == 0) world.stop_plan().stop_after(stop_at);
        try {
          exchange.dispatch_async(round.in);
          exchange.dispatch_wait(round.out);
          if (world.rank() == 2) ends = true;
        } catch (const PeerMissing&) {
        } catch (const RankStopped&) {
        }
        if (world.rank() != 0) return;
        const auto signals = world.stop_plan().signals();
        sent =
            std::count_if(signals.begin(), signals.end(), [](const StopPlan::Signal& each) { return each.peer == 2; });
      });
      const bool has_all = sent >= std::ptrdiff_t{1} + scenario.round.ranks[0].num_tokens;  // routing, and each message
      EXPECT_EQ(ends, has_all) << to_string(order) << ", stopped at call " << stop_at << ", " << sent
                               << " signals sent";
      (ends ? ended : missed) += 1;
    }
    EXPECT_EQ(ended, 1);
    EXPECT_GT(missed, 3);
  }
}

}  // namespace
}  // namespace ferry::test
