// Input scales that differ between ranks: the routing says so to every rank, so all refuse the dispatch and go on.
#include <gtest/gtest.h>

#include "conformance/rounds/handle_sequence.h"
#include "support/session.h"

namespace ferry::test {
namespace {

using conformance::RankRound;

constexpr Shape kShape{.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 5, .hidden = 64};

class InputScales : public testing::TestWithParam<FakeKind> {
 protected:
  static conformance::Scenario scenario(float scale, const char* format = "nvfp4") {
    conformance::ScenarioSettings settings;
    settings.shape = kShape;
    settings.options = conformance::options_for(format);
    settings.seed = 61;
    settings.input_scale = scale;
    return make_scenario(settings);
  }
  static void expect_refused(int rank, const std::function<void()>& call) {
    conformance::expect_error(rank, "input scales that differ", ErrorKind::invalid_argument,
                              {"input_scale is ", " here and ", " on rank "}, call);
  }
};

TEST_P(InputScales, ThatDifferAreRefusedByEveryRankAndTheExchangeGoesOn) {
  const conformance::Scenario good = scenario(37.5f);
  run_fake_ranks(GetParam(), kShape.ranks, 62, [&](FakeWorld& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, good.settings.options);
    for (int odd = 0; odd < kShape.ranks; ++odd) {  // the rank whose number is another one
      RankRound round(good, rank);
      const float scale = rank == odd ? 2.0f : 37.5f;
      round.in.input_scale = &scale;
      expect_refused(rank, [&] { exchange.dispatch(round.in, round.out); });
      exchange.dispatch_async(round.in);
      expect_refused(rank, [&] { exchange.dispatch_wait(round.out); });
      conformance::expect_error(rank, "a combine of a refused dispatch", ErrorKind::out_of_order, {"combine"},
                                [&] { exchange.combine(round.combine_in, round.combine_out); });
      conformance::run_round(exchange, good, conformance::Form::split);
      conformance::run_round(exchange, good, conformance::Form::one_call);
    }
  });
}

// I26: so does a word ahead of a replay, which has no routing. The handle stays good.
TEST_P(InputScales, ThatDifferInReplaysAreRefused) {
  const conformance::Scenario good = scenario(37.5f);
  run_fake_ranks(GetParam(), kShape.ranks, 65, [&](FakeWorld& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, good.settings.options);
    conformance::HandleMemory handle(exchange);
    RankRound first(good, rank);
    first.out.handle = handle.tensor();
    exchange.dispatch(first.in, first.out);
    for (int turn = 0; turn < 2 * kShape.ranks; ++turn) {
      const float scale = rank == turn % kShape.ranks ? 2.0f : 37.5f;
      RankRound odd(good, rank);
      odd.in = input_with(odd, handle);
      odd.in.input_scale = &scale;
      expect_refused(rank, [&] { exchange.dispatch(odd.in, odd.out); });
      RankRound again(good, rank);
      again.in = input_with(again, handle);
      exchange.dispatch(again.in, again.out);
      again.check_rows();
    }
  });
}

// What is not given is 1.
TEST_P(InputScales, ThatAreLeftOutAreOne) {
  const conformance::Scenario one = scenario(1.0f);
  run_fake_ranks(GetParam(), kShape.ranks, 63, [&](FakeWorld& world) {
    Exchange exchange(world, kShape, one.settings.options);
    RankRound round(one, world.rank());
    const float given = 1.0f;
    if (world.rank() == 1) round.in.input_scale = &given;
    exchange.dispatch(round.in, round.out);
    round.check_rows();
  });
}

// A format without a scale of the whole tensor does not look at it.
TEST_P(InputScales, ThatDifferAreNothingToAFormatThatUsesNone) {
  for (const char* format : {"bf16", "mxfp8", "fp8_block128"}) {
    const conformance::Scenario other = scenario(1.0f, format);
    run_fake_ranks(GetParam(), kShape.ranks, 64, [&](FakeWorld& world) {
      Exchange exchange(world, kShape, other.settings.options);
      RankRound round(other, world.rank());
      const auto given = static_cast<float>(world.rank() + 1);
      round.in.input_scale = &given;
      exchange.dispatch(round.in, round.out);
      round.check_rows();
    });
  }
}

// The format says itself whether it uses the scale: what it encodes depends on it, or does not.
TEST(InputScale, IsUsedByTheFormatsThatSaySo) {
  constexpr int kHidden = 128;
  const std::vector<float> row(kHidden, 1.0f);
  for (const AnyFormat& format : all_formats()) {
    const auto encoded = [&](float input_scale) {
      const std::size_t payload = format.payload_bytes(kHidden);
      std::vector<std::byte> bytes(payload + kHidden * sizeof(float));
      format.encode({}, {row.data(), DType::f32}, kHidden, input_scale, bytes.data(), bytes.data() + payload);
      return bytes;
    };
    EXPECT_EQ(format.takes_input_scale(), encoded(1.0f) != encoded(4.0f)) << format.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, InputScales, testing::ValuesIn(all_fake_kinds().begin(), all_fake_kinds().end()),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace ferry::test
