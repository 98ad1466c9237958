// Handles in memory of a GPU with a good header and any bytes behind it. A caller may have written them, so they become
// no address outside the caller's tensors (I18): there an emulated GPU ends the program, and compute-sanitizer reports
// it on a GPU. A call may fail or bring other rows, and waits no longer than its deadline. The emulated suite runs
// these tests, too. How memory is made: handles_test.cpp.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "conformance/rounds/handle_sequence.h"
#include "ferry/detail/protocol/contracts/handle.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

const int kRanks = allowed_ranks(4);
constexpr int kMaxTokens = 12;
constexpr int kKinds = 3;                // of spoiled handles, by seed
constexpr int kLikely = 3 * kMaxTokens;  // counts, rows and slots of a good handle are less

ScenarioSettings settings_of(Reduction reduction, RowOrder order = RowOrder::by_expert) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, kMaxTokens, 288};
  settings.options = conformance::options_for("mxfp8", reduction);
  if (reduction == Reduction::by_rank)
    settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded};
  settings.row_orders = {order};
  settings.seed = 8;
  return settings;
}

// What stands behind the header and the mask: words that may be of a good handle, any words, or some of both.
void spoil(const Handle& handle, std::uint64_t seed, cudaStream_t stream) {
  const std::size_t from = HandleSizes(kRanks, kMaxTokens, 1, 1, 0).end[1];
  const Tensor tensor = handle.tensor();
  std::vector<std::uint32_t> words((static_cast<std::size_t>(tensor.elements()) - from) / sizeof(std::uint32_t));
  Random random(seed);
  constexpr double kAny[kKinds] = {1.0, 0.5, 0.0};
  for (std::uint32_t& word : words)
    word = random.chance(kAny[seed % kKinds]) ? static_cast<std::uint32_t>(random.bits())
                                              : static_cast<std::uint32_t>(random.below(kLikely));
  cuda::cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(tensor.data) + from, words.data(),
                                   words.size() * sizeof words[0], cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
  cuda::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

// A call that fails says why. Nothing else goes wrong.
void expect_done_or_refused(HandleRank& rank, const std::function<void()>& call) {
  try {
    call();
    rank.wait();
    rank.exchange.check();
  } catch (const PeerMissing&) {  // a result did not come
    rank.wait();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    rank.wait();
  }
}

// All ranks give a spoiled handle to a call: to a combine, or to a dispatch with other tokens. `gone`: the last rank is
// masked since the handle's dispatch, and calls nothing more.
void call_with_spoiled(const ScenarioSettings& settings, Operation operation, std::uint64_t seed, bool gone) {
  const Scenario scenario = conformance::make_scenario(settings);
  const auto body = [&](World& world) {
    HandleRank rank(world, scenario);
    const Handle handle(conformance::handle_bytes_of(rank.exchange, scenario));
    HandleRound round(scenario, world.rank()), again(scenario, world.rank());
    round.reset(rank.stream.get());  // the first work of a stream waits for kernels of other ranks on the GPU
    world.barrier();
    rank.exchange.dispatch(round.in, round.leaving(handle), rank.call);
    rank.wait();
    rank.exchange.check();
    spoil(handle, seed + kKinds * static_cast<std::uint64_t>(world.rank()), rank.stream.get());
    if (gone) {
      RankMask mask(kRanks);
      mask.back() = true;
      if (world.rank() != kRanks - 1) rank.exchange.add_to_mask(mask);
    }
    world.barrier();
    rank.call.deadline = std::chrono::seconds(1);  // results that a handle promises may never come
    if (!gone || world.rank() != kRanks - 1)
      expect_done_or_refused(rank, [&] {
        if (operation == Operation::dispatch)
          rank.exchange.dispatch(again.replayed(handle), again.out, rank.call);
        else
          rank.exchange.combine(again.returned(handle), again.combine_out, rank.call);
      });
    world.barrier();
  };
  run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks));
}

class GpuAnyHandles : public GpuTest {
 protected:
  static void call_with_all(const ScenarioSettings& settings, bool gone = false) {
    for (const Operation operation : {Operation::dispatch, Operation::combine})
      for (const std::uint64_t seed : {21, 22, 23}) call_with_spoiled(settings, operation, seed, gone);
  }
};

TEST_F(GpuAnyHandles, ByRank) { call_with_all(settings_of(Reduction::by_rank)); }
TEST_F(GpuAnyHandles, Exact) { call_with_all(settings_of(Reduction::exact)); }
TEST_F(GpuAnyHandles, BySource) { call_with_all(settings_of(Reduction::by_rank, RowOrder::by_source)); }
TEST_F(GpuAnyHandles, PaddedWithTiles) {
  ScenarioSettings settings = settings_of(Reduction::by_rank, RowOrder::padded);
  settings.options.tiled_scales = true;
  call_with_all(settings);
}
TEST_F(GpuAnyHandles, WithMoreOutputs) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source}) {
    ScenarioSettings settings = settings_of(Reduction::by_rank, order);
    settings.more_outputs = true;
    call_with_all(settings);
  }
}
TEST_F(GpuAnyHandles, OfRowsWithoutRoom) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    ScenarioSettings settings = settings_of(reduction);
    settings.overflow = Overflow::expected;
    settings.room_percent = 60;
    call_with_all(settings);
  }
}
TEST_F(GpuAnyHandles, WithLateAndReturnedWeights) {
  ScenarioSettings settings = settings_of(Reduction::by_rank);
  settings.options.late_weights = settings.options.returns_weights = true;
  settings.weights_at = conformance::WeightsAt::combine;
  call_with_all(settings);
}
TEST_F(GpuAnyHandles, ExactWithReturnedWeights) {
  ScenarioSettings settings = settings_of(Reduction::exact);
  settings.options.returns_weights = true;
  call_with_all(settings);
}
TEST_F(GpuAnyHandles, ShortOnes) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source}) {
    ScenarioSettings settings = settings_of(Reduction::by_rank, order);
    settings.options.short_handles = true;
    call_with_all(settings, order == RowOrder::by_source);
  }
}
TEST_F(GpuAnyHandles, ShortOnesOfRowsWithoutRoom) {
  ScenarioSettings settings = settings_of(Reduction::exact);
  settings.overflow = Overflow::expected;
  settings.room_percent = 60;
  settings.options.short_handles = settings.options.returns_weights = true;
  call_with_all(settings);
}
TEST_F(GpuAnyHandles, OfALargerMask) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source})
    call_with_all(settings_of(Reduction::by_rank, order), true);
}

}  // namespace
}  // namespace ferry::test
