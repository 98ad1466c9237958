// Handles from before a mask grew, on GPUs: ranks with all orders of rows at once, scales that a kernel of their own
// stores, and bytes of a handle that a caller has changed. The conformance suite has the rest.
#include <gmock/gmock.h>

#include <atomic>

#include "cuda/exchange/plan/kernel_plan.h"
#include "emulated/device_rank.h"
#include "emulated/emulated_ranks.h"
#include "emulated/late_world.h"
#include "ferry/detail/protocol/contracts/handle.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

ScenarioSettings settings_of(const char* format, const Shape& shape, const std::vector<RowOrder>& orders) {
  ScenarioSettings settings;
  settings.shape = shape;
  settings.options = conformance::options_for(format);
  settings.options.expert_alignment = 4;
  if (orders.size() > 1) settings.options.row_orders = kAllOrders;
  settings.row_orders = orders;
  settings.routing = "uniform";
  settings.seed = 5;
  return settings;
}

// The last rank leaves after a dispatch that left a handle.
struct Left {
  Scenario first, given, again;
  RankMask gone;

  explicit Left(ScenarioSettings settings)
      : first(make_scenario(settings)), gone(static_cast<std::size_t>(settings.shape.ranks)) {
    gone.back() = true;
    settings.gone = gone;
    given = with_other_tokens(first, settings, 6);
    again = with_other_tokens(first, settings, 7);
  }
};

// Calls of the ranks that go on. `spoil` is called between two of them.
void go_on(const Left& left, EmulatedReach reach, const std::function<void(Handle&, cudaStream_t)>& spoil = {}) {
  const int ranks = left.first.settings.shape.ranks;
  const auto body = [&](World& world) {
    DeviceRank rank(world, left.first);
    rank.call.max_blocks = left.first.settings.max_blocks;
    Handle handle(rank.exchange);
    HandleRound round(left.first, world.rank());
    rank.exchange.dispatch(round.in, round.leaving(handle), rank.call);
    rank.check_rows(round);
    if (world.rank() == ranks - 1) return;
    HandleRound given(left.given, world.rank()), again(left.again, world.rank());
    rank.exchange.add_to_mask(left.gone);
    if (spoil) spoil(handle, rank.stream.get());
    rank.exchange.combine(given.returned(handle), given.combine_out, rank.call);
    given.fetch();
    rank.exchange.check();
    if (!spoil) given.host.check_tokens();
    for (int i = 0; i < 2; ++i) {
      again.reset(rank.stream.get());
      rank.exchange.dispatch(again.replayed(handle), again.out, rank.call);
      if (spoil) continue;
      rank.check_rows(again);
      rank.exchange.combine(again.returned(handle), again.combine_out, rank.call);
      again.fetch();
      rank.exchange.check();
      again.host.check_tokens();
    }
    again.fetch();
    rank.exchange.check();
  };
  reach == EmulatedReach::direct ? run_cuda_ranks(ranks, false, body) : run_worlds(make_late_worlds(ranks), body);
}

class EmulatedMaskedHandles : public EmulatedGpus {};

TEST_F(EmulatedMaskedHandles, AreGoodInEveryOrderOfRows) {
  using enum RowOrder;
  for (const EmulatedReach reach : {EmulatedReach::direct, EmulatedReach::late_puts})
    for (const std::vector<RowOrder>& orders : {std::vector{in_place, by_source, padded}, {by_expert, in_place}}) {
      ScenarioSettings settings =
          settings_of("fp8_block128", {.ranks = 4, .experts = 10, .top_k = 8, .max_tokens = 9, .hidden = 128}, orders);
      settings.more_outputs = reach == EmulatedReach::direct;
      go_on(Left(settings), reach);
    }
}

// The scales kernel of a large round finds messages by src_info.
TEST_F(EmulatedMaskedHandles, HaveNoScalesThatAKernelOfTheirOwnStores) {
  emulated::set_gpus({.multiprocessors = 8});
  for (const char* format : {"fp8_block128", "nvfp4"}) {
    ScenarioSettings settings = settings_of(
        format, {.ranks = 2, .experts = 5, .top_k = 2, .max_tokens = 600, .hidden = 1024}, {RowOrder::by_expert});
    settings.max_blocks = cuda::kLeastBlocks;
    std::atomic<int> launched = 0;
    change_params<cuda::ScalesParams>([&](cuda::ScalesParams&) { ++launched; });
    change_params<cuda::FinishParams>([&](cuda::FinishParams& left) { launched += left.has_scales ? 1 : 0; });
    go_on(Left(settings), EmulatedReach::direct);
    change_params<cuda::ScalesParams>({});
    change_params<cuda::FinishParams>({});
    EXPECT_GE(launched, 4) << format;
  }
}

// I18: row starts of a handle are a caller's bytes by now. No row lies outside the outputs; the emulated GPU would see
// it. Which rows are laid out is not said.
TEST_F(EmulatedMaskedHandles, OfAnyBytesMakeNoRowsThatHaveNoPlace) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded}) {
    const Left left(
        settings_of("mxfp8", {.ranks = 3, .experts = 7, .top_k = 4, .max_tokens = 9, .hidden = 64}, {order}));
    const std::size_t starts = HandleSizes(3, 9, 4, 3, 0).end[1];
    for (const std::size_t at : {starts + 3, starts + 17, starts + 27})
      go_on(left, EmulatedReach::direct, [&](Handle& handle, cudaStream_t stream) { handle.spoil(at, stream); });
  }
}

}  // namespace
}  // namespace ferry::test
