// Masks: latched by a dispatch, and applied where a token's home is.
#include <gtest/gtest.h>

#include "support/session.h"

namespace ferry::test {
namespace {

using conformance::RankRound;
using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr Shape kShape{.ranks = 3, .experts = 6, .top_k = 3, .max_tokens = 5, .hidden = 32};

ScenarioSettings settings_of(Reduction reduction, std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("bf16", reduction);
  settings.seed = seed;
  return settings;
}

RankMask without(int rank) {
  RankMask mask(static_cast<std::size_t>(kShape.ranks));
  mask[static_cast<std::size_t>(rank)] = true;
  return mask;
}

// I11: a mask given while a round is open leaves that round as it is: rank 2 still takes part in its combine.
TEST(Masks, TakeEffectAtTheNextDispatch) {
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering, FakeKind::stepped_late}) {
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
      const Scenario all = make_scenario(settings_of(reduction, 41));
      ScenarioSettings masked = settings_of(reduction, 42);
      masked.options.mask = without(2);
      const Scenario survivors = make_scenario(masked);
      run_fake_ranks(kind, kShape.ranks, 43, [&](FakeWorld& world) {
        Exchange exchange(world, kShape, all.settings.options);
        RankRound round(all, world.rank());
        exchange.dispatch(round.in, round.out);
        round.check_rows();
        if (world.rank() != 2) exchange.add_to_mask(without(2));
        exchange.combine(round.combine_in, round.combine_out);
        round.check_tokens();
        if (world.rank() == 2) return;
        for (int i = 0; i < 4; ++i) conformance::run_round(exchange, survivors, conformance::Form::one_call);
      });
    }
  }
}

// I8, I11: rank 2 leaves after its dispatch, so its results never come. The others give that round up with results on
// their way: of these they wait for those of ranks that the next round has.
TEST(Masks, TakeRanksOutOfARoundThatIsGivenUp) {
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering, FakeKind::stepped_late}) {
    const Scenario all = make_scenario(settings_of(Reduction::by_rank, 44));
    ScenarioSettings masked = settings_of(Reduction::by_rank, 45);
    masked.options.mask = without(2);
    const Scenario survivors = make_scenario(masked);
    run_fake_ranks(kind, kShape.ranks, 46, [&](FakeWorld& world) {
      Exchange exchange(world, kShape, all.settings.options);
      RankRound round(all, world.rank());
      exchange.dispatch(round.in, round.out);
      if (world.rank() == 2) return;
      exchange.combine_async(round.combine_in);
      exchange.add_to_mask(without(2));
      for (int i = 0; i < 3; ++i) conformance::run_round(exchange, survivors, conformance::Form::one_call);
    });
  }
}

// The scenario as it is when ranks 0 and 2 have lost each other: what one sends to the other is dropped at its home.
Scenario without_entries_between_0_and_2(const Scenario& given) {
  Scenario scenario = given;
  for (const int source : {0, 2}) {
    for (std::int64_t& id : scenario.round.ranks[static_cast<std::size_t>(source)].topk_ids)
      if (id >= 0 && owner_of(kShape, static_cast<int>(id)) == 2 - source) id = -1;
  }
  for (std::size_t rank = 0; rank < scenario.rows.size(); ++rank) {
    scenario.rows[rank] =
        expected_rows(scenario.round, static_cast<int>(rank), scenario.row_capacity[rank], conformance::kPoison);
    Random random(7 + rank);
    scenario.expert_output[rank].clear();
    for (std::size_t i = 0; i < scenario.rows[rank].rows.size() * static_cast<std::size_t>(kShape.hidden); ++i)
      scenario.expert_output[rank].push_back(from_bf16(to_bf16(static_cast<float>(random.unit() - 0.5))));
  }
  return scenario;
}

// I9, I11: the mask is in the source's table, so the expert ranks of a token need not know it. Rank 1 masks nobody, and
// still numbers the slots of rank 0's tokens as rank 0 does.
TEST(Masks, NeedNotBeKnownToTheExpertRanks) {
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering_nodes, FakeKind::stepped_late}) {
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
      const Scenario given = make_scenario(settings_of(reduction, 51));
      const Scenario expected = without_entries_between_0_and_2(given);
      run_fake_ranks(kind, kShape.ranks, 52, [&](FakeWorld& world) {
        const int rank = world.rank();
        Exchange exchange(world, kShape, given.settings.options);
        if (rank != 1) exchange.add_to_mask(without(2 - rank));
        for (int i = 0; i < 4; ++i) {
          RankRound round(expected, rank);
          const RankRound as_given(given, rank);
          round.in.topk_ids = as_given.in.topk_ids;
          exchange.dispatch(round.in, round.out);
          // Expected rows leave out a whole masked rank; here only 0 and 2 have lost each other, and neither laid out a
          // row of the other, since those entries are gone.
          round.check_rows();
          exchange.combine(round.combine_in, round.combine_out);
          round.check_tokens();
        }
      });
    }
  }
}

}  // namespace
}  // namespace ferry::test
