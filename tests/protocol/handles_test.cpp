// Handles over every fabric of the tests: dispatches that leave them, replays and combines that are given them, in any
// order, with halves that interleave; and what becomes of handles of another dispatch.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <tuple>

#include "conformance/rounds/handle_sequence.h"
#include "support/all_begin.h"
#include "support/fake_world.h"
#include "support/kept_handle.h"

namespace ferry::test {
namespace {

using conformance::HandleSequence;
using conformance::RankRound;
using conformance::Scenario;
using conformance::ScenarioSettings;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kFewer = 4;
#else
constexpr int kFewer = 1;
#endif

void run(FakeKind kind, std::uint64_t seed, const HandleSequence& sequence) {
  try {
    run_fake_ranks(kind, sequence.exchanges[0].shape.ranks, seed, [&](FakeWorld& world) {
      std::vector<Exchange> exchanges;
      for (const ScenarioSettings& each : sequence.exchanges) exchanges.emplace_back(world, each.shape, each.options);
      conformance::run_handle_sequence(exchanges, sequence);
    });
  } catch (const std::exception& error) {
    FAIL() << name_of(kind) << ", seed " << seed << ": " << error.what();
  }
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kSeesRaces = true;
#else
constexpr bool kSeesRaces = false;
#endif

using Case = std::tuple<FakeKind, Reduction>;
class Handles : public testing::TestWithParam<Case> {
 protected:
  FakeKind kind() const { return std::get<0>(GetParam()); }
  Reduction reduction() const { return std::get<1>(GetParam()); }
  int workers() const { return is_stepped(kind()) ? 1 : 2; }
};

// A handle works on another exchange, with another format and other tokens.
TEST_P(Handles, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 24 / kFewer && !HasFailure(); ++seed) {
    Random random(seed);
    Shape shape;
    shape.ranks = random.between(1, 4);
    shape.experts = shape.ranks + random.below(7);
    shape.top_k = random.between(1, std::min(shape.experts, 5));
    shape.max_tokens = random.between(1, 6);
    shape.hidden = 64;
    std::vector<ScenarioSettings> exchanges{settings_of(shape, "fp8_block128", reduction(), workers())};
    shape.hidden = 32;
    exchanges.push_back(settings_of(shape, "bf16", reduction(), workers()));
    for (ScenarioSettings& each : exchanges) each.options.fused_shared_expert = seed % 4 == 0;
    run(kind(), seed, conformance::make_handle_sequence(exchanges, seed, 14));
  }
}

// I1, I13: parities follow the counter of their own kind, whatever comes between two routings.
TEST_P(Handles, ReplayBetweenTwoDispatches) {
  const Shape shape{.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 4, .hidden = 32};
  for (int replays = 1; replays <= 4; ++replays) {
    HandleSequence sequence{{settings_of(shape, "bf16", reduction())}, {}};
    for (std::uint64_t round = 0; round < 6; ++round) {
      ScenarioSettings settings = sequence.exchanges[0];
      settings.seed = round;
      settings.routing = round % 2 == 0 ? "uniform" : "ragged";
      conformance::HandleMove keep;
      keep.kind = conformance::HandleMove::Kind::keep;
      keep.scenario = make_scenario(settings);
      keep.combines = round % 3 == 0;
      sequence.moves.push_back(keep);
      for (int i = 0; i < replays; ++i) {
        conformance::HandleMove replay = keep;
        replay.kind = conformance::HandleMove::Kind::replay;
        replay.scenario = with_other_tokens(keep.scenario, settings, 100 * round + static_cast<std::uint64_t>(i));
        replay.combines = i % 2 == 0;
        sequence.moves.push_back(replay);
      }
    }
    run(kind(), static_cast<std::uint64_t>(replays), sequence);
  }
}

// I8: a combine that follows a combine writes slots that others may still sum.
TEST_P(Handles, CombineAgainAndAgain) {
  const Shape shape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 4, .hidden = 32};
  HandleSequence sequence{{settings_of(shape, "bf16", reduction())}, {}};
  ScenarioSettings settings = sequence.exchanges[0];
  for (std::size_t handle = 0; handle < 2; ++handle) {
    settings.seed = 50 + handle;
    conformance::HandleMove keep;
    keep.kind = conformance::HandleMove::Kind::keep;
    keep.handle = handle;
    keep.scenario = make_scenario(settings);
    sequence.moves.push_back(keep);
  }
  for (std::uint64_t i = 0; i < 12; ++i) {
    conformance::HandleMove combine = sequence.moves[i % 2];
    combine.kind = conformance::HandleMove::Kind::combine;
    combine.scenario = with_other_tokens(combine.scenario, settings, 60 + i);
    combine.form = i % 3 == 0 ? conformance::Form::split : conformance::Form::one_call;
    sequence.moves.push_back(combine);
  }
  for (std::uint64_t seed = 1; seed <= 8 / kFewer && !HasFailure(); ++seed) run(kind(), seed, sequence);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Handles,
                         testing::Combine(testing::ValuesIn(all_fake_kinds().begin(), all_fake_kinds().end()),
                                          testing::Values(Reduction::by_rank, Reduction::exact)),
                         [](const auto& each) {
                           return std::string(name_of(std::get<0>(each.param))) + "_" +
                                  to_string(std::get<1>(each.param));
                         });

// I1: a replay ends only when it has begun everywhere. It says so by a word, as no table is sent.
TEST(Replays, EndOnlyWhenAllHaveBegun) {
  const Scenario scenario = scenario_of(1, "no_tokens");
  AllBegin all(kShape.ranks);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 7, [&](FakeWorld& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    Kept kept(exchange, scenario);
    for (int turn = 0; turn < 4; ++turn)
      all.check(world.rank(), turn, [&] { exchange.dispatch(input_with(kept.round, kept.handle), kept.round.out); });
  });
}

constexpr std::chrono::seconds kOthersReady{60};

// Every rank throws, at once, and says which rank's handle is another's.
void expect_other_routing(const std::function<void(Exchange&, Kept&, Kept&)>& call) {
  const Scenario first = scenario_of(2);
  const Scenario second = scenario_of(3, "ragged");
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering, FakeKind::stepped}) {
    run_fake_ranks(kind, kShape.ranks, 8, [&](FakeWorld& world) {
      Exchange exchange(world, kShape, first.settings.options);
      Kept a(exchange, first);
      Kept b(exchange, second);
      // A dispatch ends where all ranks have begun it: a rank that is late in it would be told of the call below there.
      world.barrier({}, kOthersReady);
      const auto expect_refused = [&] {
        try {
          call(exchange, a, b);
          ADD_FAILURE() << name_of(kind) << ": rank " << world.rank() << " noticed nothing";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
          EXPECT_NE(std::string(error.what()).find(" a handle"), std::string::npos) << error.what();
        }
      };
      expect_refused();
      expect_refused();  // and every call after it
    });
  }
}

TEST(OtherHandles, InReplaysAreNoticed) {
  expect_other_routing([](Exchange& exchange, Kept& a, Kept& b) {
    Kept& mine = exchange.rank() == 0 ? a : b;
    exchange.dispatch(input_with(mine.round, mine.handle), mine.round.out);
  });
}

TEST(OtherHandles, BesideAFreshDispatchAreNoticed) {
  expect_other_routing([](Exchange& exchange, Kept& a, Kept&) {
    exchange.dispatch(exchange.rank() == 1 ? input_with(a.round, a.handle) : a.round.in, a.round.out);
  });
}

TEST(OtherHandles, InCombinesAreNoticed) {
  if (kSeesRaces) GTEST_SKIP() << "ranks with different handles write one slot before one of them notices";
  expect_other_routing([](Exchange& exchange, Kept& a, Kept& b) {
    Kept& mine = exchange.rank() == 2 ? a : b;
    exchange.combine(combine_input_with(mine.round, mine.handle), mine.round.combine_out);
  });
}

RankMask without(int rank) {
  RankMask mask(static_cast<std::size_t>(kShape.ranks));
  mask[static_cast<std::size_t>(rank)] = true;
  return mask;
}

// The sums of `given` where no result of rank 2 comes: its experts' entries count for nothing, but the rows and slots
// of the others are as they were.
Scenario without_results_of_2(Scenario scenario) {
  for (test::RankInput& in : scenario.round.ranks)
    for (std::int64_t& id : in.topk_ids)
      if (id >= 0 && owner_of(kShape, static_cast<int>(id)) == 2) id = -1;
  scenario.rows[2].rows.clear();
  return scenario;
}

// I11: rank 2 leaves after the dispatches. The others finish what they have handles of: its results count as zeros, and
// the rows of its tokens become padding in a replay.
TEST(KeptMasks, LetTheOthersFinish) {
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering, FakeKind::reordering_nodes, FakeKind::stepped}) {
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
      const Scenario given = scenario_of(4, "uniform", reduction);
      const Scenario expected = without_results_of_2(given);
      run_fake_ranks(kind, kShape.ranks, 9, [&](FakeWorld& world) {
        Exchange exchange(world, kShape, given.settings.options);
        Kept kept(exchange, given);
        if (world.rank() == 2) return;
        exchange.add_to_mask(without(2));
        for (int i = 0; i < 3; ++i) {
          RankRound back(expected, world.rank());
          back.combine_in.src_info = {};
          exchange.combine(combine_input_with(back, kept.handle), back.combine_out);
          back.check_tokens();
          if (i == 1) continue;
          RankRound again(given, world.rank());
          exchange.dispatch(input_with(again, kept.handle), again.out);
          const auto& rows = given.rows[static_cast<std::size_t>(world.rank())].rows;
          for (std::size_t row = 0; row < rows.size(); ++row) {
            const std::int32_t token = again.out.src_info.as<std::int32_t>()[2 * row];
            EXPECT_EQ(token, rows[row].source == 2 ? -1 : rows[row].token) << "row " << row;
          }
        }
        Scenario survivors = given;
        survivors.settings.options.mask = without(2);
        conformance::run_round(exchange, make_scenario(survivors.settings), conformance::Form::one_call);
      });
    }
  }
}

// I18: of rows whose source is masked by now, src_info may say what the handle's dispatch wrote, or that they are
// padding, as a replay since then wrote.
TEST(KeptMasks, TakeTheSrcInfoOfTheDispatchAndOfAReplay) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const Scenario given = scenario_of(4, "uniform", reduction);
    const Scenario expected = without_results_of_2(given);
    run_fake_ranks(FakeKind::direct, kShape.ranks, 9, [&](FakeWorld& world) {
      Exchange exchange(world, kShape, given.settings.options);
      Kept kept(exchange, given);
      if (world.rank() == 2) return;
      exchange.add_to_mask(without(2));
      RankRound again(given, world.rank());
      exchange.dispatch(input_with(again, kept.handle), again.out);
      for (RankRound* wrote : {&kept.round, &again}) {
        RankRound back(expected, world.rank());
        CombineInput in = combine_input_with(back, kept.handle);
        in.src_info = wrote->out.src_info;
        exchange.combine(in, back.combine_out);
        back.check_tokens();
      }
    });
  }
}

}  // namespace
}  // namespace ferry::test
