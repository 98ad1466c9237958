// A format from outside the library in an exchange on the CPU: rows and sums byte for byte as the oracle has them.
#include <gtest/gtest.h>

#include "conformance/rounds/rank_round.h"
#include "ferry/exchange.h"
#include "support/own_formats.h"

namespace ferry::test {
namespace {

using conformance::RankRound;
using conformance::Scenario;
using conformance::ScenarioSettings;

class UserFormatExchange : public testing::TestWithParam<AnyFormat> {};

TEST_P(UserFormatExchange, CarriesRowsByteForByte) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    for (const int hidden : {32, 96, 288}) {  // a row's last block is short, or the only one
      ScenarioSettings settings;
      settings.shape = {3, 7, 2, 40, hidden};
      settings.options = conformance::options_for("bf16", reduction);
      settings.options.format = GetParam();
      settings.options.fused_shared_expert = reduction == Reduction::exact;
      settings.routing = "ragged";
      settings.seed = static_cast<std::uint64_t>(hidden);
      const Scenario scenario = conformance::make_scenario(settings);
      run_ranks(settings.shape.ranks, [&](World& world) {
        Exchange exchange(world, settings.shape, settings.options);
        for (int turn = 0; turn < 3; ++turn) {
          RankRound round(scenario, world.rank());
          exchange.dispatch(round.in, round.out, round.call);
          exchange.combine(round.combine_in, round.combine_out, round.call);
          round.check_rows();
          round.check_tokens();
        }
      });
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, UserFormatExchange,
                         testing::Values(any_format<Int8Block64>(), any_format<Int8Transposed>(),
                                         any_format<Int8Tiled>()),
                         [](const auto& format) { return std::string(format.param.name()); });

}  // namespace
}  // namespace ferry::test
