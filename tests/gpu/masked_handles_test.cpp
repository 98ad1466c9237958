// Handles in memory of a GPU from before a rank left: calls with them in captured graphs and beside them. Ranks share a
// GPU where there are few: see handles_test.cpp. The emulated suite runs these tests, too. The conformance suite has
// more, with handles in host memory.
#include <gtest/gtest.h>

#include <latch>
#include <optional>

#include "gpu/captured_graph.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr int kRanks = 4;
constexpr int kGone = 1;

ScenarioSettings settings_of(Reduction reduction, const std::vector<RowOrder>& orders) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 8, 20, 288};
  settings.options = conformance::options_for("mxfp8", reduction);
  settings.row_orders = orders;
  if (!orders.empty()) settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded};
  settings.routing = "uniform";
  settings.seed = 8;
  return settings;
}

// Counts down when a rank has given all memory up, or failed.
class Leaving {
 public:
  explicit Leaving(std::latch& left) : left_(left) {}
  ~Leaving() { left_.count_down(); }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

 private:
  std::latch& left_;
};

class GpuMaskedHandles : public GpuTest {};

void go_on_in_graphs(ScenarioSettings settings) {
  const RankMask gone = [] {
    RankMask mask(kRanks);
    mask[kGone] = true;
    return mask;
  }();
  const Scenario first = conformance::make_scenario(settings);
  settings.gone = gone;
  const Scenario given = with_other_tokens(first, settings, 9), again = with_other_tokens(first, settings, 10);
  std::latch others_left(kRanks - 1);
  const auto body = [&](World& world) {
    std::optional<Leaving> leaving;
    if (world.rank() != kGone) leaving.emplace(others_left);
    HandleRank rank(world, first);
    const Handle handle(rank.exchange);
    HandleRound round(first, world.rank()), of_given(given, world.rank()), of_again(again, world.rank());
    world.barrier();
    rank.keep(round, handle);
    rank.combine(round, handle);
    world.barrier();
    if (!leaving) return others_left.wait();  // to free memory is to wait for the device, which holds launches up
    rank.exchange.add_to_mask(gone);
    const CapturedGraph replays(rank.stream.get(), [&] {
      rank.exchange.dispatch(of_again.replayed(handle), of_again.out, rank.call);
      rank.exchange.combine(of_again.returned(handle), of_again.combine_out, rank.call);
    });
    const CapturedGraph returns(
        rank.stream.get(), [&] { rank.exchange.combine(of_given.returned(handle), of_given.combine_out, rank.call); });
    rank.wait();
    world.barrier(gone);
    for (int i = 0; i < 3; ++i) {
      of_given.reset(rank.stream.get());
      of_again.reset(rank.stream.get());
      returns.launch(rank.stream.get());
      replays.launch(rank.stream.get());
      rank.check_tokens(of_given);
      rank.check_rows(of_again);
      rank.check_tokens(of_again);
      rank.replay(of_given, handle);
      rank.combine(of_again, handle, true);
    }
    world.barrier(gone);
  };
  run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks));
}

TEST_F(GpuMaskedHandles, AreGoodInCapturedGraphs) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) go_on_in_graphs(settings_of(reduction, {}));
}
TEST_F(GpuMaskedHandles, AreGoodInCapturedGraphsOfRanksOfDifferentOrders) {
  go_on_in_graphs(settings_of(Reduction::by_rank, {RowOrder::by_source, RowOrder::by_expert, RowOrder::padded}));
}

}  // namespace
}  // namespace ferry::test
