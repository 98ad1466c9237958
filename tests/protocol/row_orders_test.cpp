// The orders of rows over every fabric of the tests: sessions in which each rank chooses an order for each round, and
// what the invariants of by_source and in_place rest on.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/kept_handle.h"
#include "support/session.h"

namespace ferry::test {
namespace {

using conformance::RankRound;
using conformance::Scenario;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kFewer = 4;  // sanitizers are slow: fewer seeds find what they look for
#else
constexpr int kFewer = 1;
#endif

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

class Orders : public testing::TestWithParam<FakeKind> {
 protected:
  static void run(FakeKind kind, std::uint64_t seed, const Session& session) {
    try {
      run_session_on(kind, seed, session);
    } catch (const std::exception& error) {
      FAIL() << name_of(kind) << ", seed " << seed << ": " << error.what() << "\n" << session.description();
    }
  }
};

// I4, I23: each rank draws an order for each round, and some rounds are given up.
TEST_P(Orders, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 40 / kFewer && !HasFailure(); ++seed) {
    Random random(seed);
    SessionSettings settings = draw_settings(random, seed % 2 == 0 ? "bf16" : "fp8_block128", Reduction::by_rank,
                                             is_stepped(GetParam()) ? 1 : 2);
    settings.shape.max_tokens = random.between(1, 40);
    settings.options.fused_shared_expert = false;
    settings.options.row_orders = kAllOrders;
    settings.row_orders = {RowOrder::by_source, RowOrder::padded, RowOrder::in_place, RowOrder::by_expert};
    run(GetParam(), seed, make_session(settings, seed));
  }
}

// I15: the lists that a rank sends have two copies, as the network may read the ones of the round before.
TEST_P(Orders, ReuseTheirTokenLists) {
  SessionSettings many;
  many.shape = {.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 36, .hidden = 32};
  many.options = conformance::options_for("bf16");
  many.options.row_orders = kAllOrders;
  many.row_orders = {RowOrder::by_source};
  many.num_rounds = 24 / kFewer;
  for (std::uint64_t seed = 1; seed <= 6 / kFewer + 1 && !HasFailure(); ++seed)
    run(GetParam(), seed, make_session(many, seed));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Orders,
                         testing::Values(FakeKind::direct, FakeKind::reordering, FakeKind::reordering_nodes,
                                         FakeKind::stepped, FakeKind::stepped_late, FakeKind::stepped_lagging),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

constexpr RowOrder kOrders[] = {RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

conformance::ScenarioSettings settings_of(RowOrder order, std::uint64_t seed) {
  conformance::ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("fp8_block128");
  settings.options.row_orders = kAllOrders;
  settings.row_orders = {order};
  settings.seed = seed;
  return settings;
}

RankMask without_2() { return {false, false, true}; }

// I11: a masked source has no rows, whatever its words and lists say from rounds before.
TEST(OrdersWithMasks, HaveNoRowsOfAMaskedRank) {
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering, FakeKind::stepped_late}) {
    for (const RowOrder order : kOrders) {
      const Scenario all = make_scenario(settings_of(order, 61));
      conformance::ScenarioSettings masked = settings_of(order, 62);
      masked.options.mask = without_2();
      const Scenario survivors = make_scenario(masked);
      run_fake_ranks(kind, kShape.ranks, 63, [&](FakeWorld& world) {
        Exchange exchange(world, kShape, all.settings.options);
        for (int i = 0; i < 2; ++i) conformance::run_round(exchange, all, conformance::Form::split);
        if (world.rank() == 2) return;
        exchange.add_to_mask(without_2());
        for (int i = 0; i < 4; ++i) conformance::run_round(exchange, survivors, conformance::Form::one_call);
      });
    }
  }
}

// I11, I23: with a handle from before, the rows of rank 2 stay where they are as padding, and all others keep theirs.
TEST(OrdersWithMasks, KeepTheRowsOfAHandle) {
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering, FakeKind::stepped}) {
    for (const RowOrder order : kOrders) {
      conformance::ScenarioSettings settings = settings_of(order, 64);
      settings.more_outputs = true;
      settings.zero_padding = order != RowOrder::in_place;
      const Scenario given = make_scenario(settings);
      run_fake_ranks(kind, kShape.ranks, 65, [&](FakeWorld& world) {
        Exchange exchange(world, kShape, given.settings.options);
        Kept kept(exchange, given);
        if (world.rank() == 2) return;
        exchange.add_to_mask(without_2());
        exchange.combine(combine_input_with(kept.round, kept.handle), kept.round.combine_out);
        RankRound again(given, world.rank());
        exchange.dispatch(input_with(again, kept.handle), again.out);
        const auto& rows = given.rows[static_cast<std::size_t>(world.rank())].rows;
        for (std::size_t row = 0; row < rows.size(); ++row) {
          if (is_padding(rows[row])) continue;
          const bool is_gone = rows[row].source == 2;
          EXPECT_EQ(again.out.src_info.as<std::int32_t>()[2 * row], is_gone ? -1 : rows[row].token) << row;
          if (order == RowOrder::in_place) {
            EXPECT_EQ(again.out.gather.as<std::int32_t>()[row] < 0, is_gone) << row;
          }
          if (order != RowOrder::by_source) {
            EXPECT_EQ(again.out.row_sources.as<std::int32_t>()[row], is_gone ? -1 : rows[row].source) << row;
            const auto& weights = given.round.ranks[static_cast<std::size_t>(rows[row].source)].weights;
            const auto entry = static_cast<std::size_t>(rows[row].token * kShape.top_k + rows[row].k);
            EXPECT_EQ(again.out.row_weights.as<float>()[row], is_gone ? 0.0f : weights[entry]) << row;
          }
          if (order != RowOrder::in_place && is_gone) {
            const auto bytes = static_cast<std::size_t>(exchange.layout().payload_row_bytes);
            const auto* payload = again.out.payload.as<std::byte>() + row * bytes;
            EXPECT_TRUE(std::all_of(payload, payload + bytes, [](std::byte each) { return each == std::byte{0}; }));
          }
          if (order != RowOrder::by_source) continue;
          const auto* ids = again.out.row_topk_ids.as<std::int32_t>() + row * static_cast<std::size_t>(kShape.top_k);
          EXPECT_EQ(std::all_of(ids, ids + kShape.top_k, [](std::int32_t id) { return id < 0; }), is_gone) << row;
        }
        exchange.combine(combine_input_with(again, kept.handle), again.combine_out);
      });
    }
  }
}

}  // namespace
}  // namespace ferry::test
