// A dispatch with too many tokens of one rank, in memory of a GPU, at ranks that do not ask what comes: they throw
// late, what they called since has done nothing, and they go on. The emulated suite runs this test, too, and has more
// of them. All memory is made before the first call, as in handles_test.cpp.
#include <gmock/gmock.h>

#include "conformance/rounds/scenario.h"
#include "gpu/gpu_test.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr int kRanks = 4;
constexpr int kOdd = 1;  // the rank that has too many

Scenario scenario_of(RowOrder order) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, 20, 96};
  settings.options = conformance::options_for("mxfp8");
  if (order == RowOrder::by_source) settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source};
  settings.row_orders = {order, RowOrder::by_expert};
  settings.routing = "ragged";
  settings.seed = 7;
  return conformance::make_scenario(settings);
}

class GpuRefusals : public GpuTest {};

// In turn the rank calls nothing since, its combine, and other dispatches.
void refuse_and_go_on(HandleRank& rank, HandleRound& lost, HandleRound& round, int turn) {
  const bool is_odd = rank.world.rank() == kOdd;
  DispatchInput in = lost.in;
  if (is_odd) in.tokens.shape[0] = in.topk_ids.shape[0] = in.topk_weights.shape[0] = 21;
  conformance::expect_error(rank.world.rank(), "too many tokens", ErrorKind::invalid_argument,
                            {"tokens of rank 1 has 21 rows", "max_tokens = 20"}, [&] {
                              rank.exchange.dispatch(in, lost.out, rank.call);
                              if (turn > 0) rank.exchange.combine(lost.combine_in, lost.combine_out, rank.call);
                              if (turn > 1) rank.exchange.dispatch(lost.in, lost.out, rank.call);
                              rank.wait();
                              rank.exchange.check();
                            });
  round.reset(rank.stream.get());
  rank.exchange.dispatch(round.in, round.out, rank.call);
  rank.check_rows(round);
  rank.combine_newest(round);
}

TEST_F(GpuRefusals, AreThrownLateByRanksThatDoNotAsk) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source}) {
    const Scenario scenario = scenario_of(order);
    const auto body = [&](World& world) {
      HandleRank rank(world, scenario);
      HandleRound lost(scenario, world.rank()), round(scenario, world.rank());
      world.barrier();
      for (int turn = 0; turn < 6; ++turn) refuse_and_go_on(rank, lost, round, turn % 3);
      world.barrier();
    };
    run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks));
  }
}

}  // namespace
}  // namespace ferry::test
