// A rank of emulated GPUs that leaves when it has enqueued a combine: its kernels still send the results, and the
// others wait for them.
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "emulated/device_rank.h"
#include "gpu/handle_round.h"
#include "support/emulated_gpu/memory.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 3;
constexpr int kLeaving = 2;  // the slow one, so the others wait for its results when it has said that it left

class EmulatedLeaving : public EmulatedGpus {};

// Combines before the last one take numbers of their own, which a leaving rank counts.
void leave_after_combine_async(World& world, const conformance::Scenario& scenario, bool with_handle) {
  auto rank = std::make_unique<DeviceRank>(world, scenario);
  HandleRound round(scenario, world.rank());
  const Handle handle(rank->exchange);
  const CombineInput in = with_handle ? round.returned(handle) : round.combine_in;
  const auto wait = [&] { cuda::cuda_check(cudaStreamSynchronize(rank->stream.get()), "cudaStreamSynchronize"); };
  for (int i = 0; i < 2; ++i) {
    rank->exchange.dispatch(round.in, round.leaving(handle), rank->call);
    rank->exchange.combine(in, round.combine_out, rank->call);
  }
  rank->exchange.dispatch(round.in, round.leaving(handle), rank->call);
  wait();
  world.barrier();
  std::optional<emulated::Hold> hold;
  if (world.rank() == 0) hold.emplace();
  world.barrier();
  if (world.rank() == kLeaving) {
    rank->exchange.combine_async(in, rank->call);
    rank.reset();  // says that it leaves, and then waits for its kernels
    return world.barrier();
  }
  rank->exchange.combine(in, round.combine_out, rank->call);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  hold.reset();
  wait();
  rank->exchange.check();
  round.fetch();
  round.host.check_tokens();
  world.barrier();
}

void leave(Reduction reduction, Reduction chosen, bool with_handle) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for("mxfp8", reduction);
  settings.options.deadline = std::chrono::minutes(10);
  settings.chosen = chosen;
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    emulated::reset({.seed = seed, .slow_device = kLeaving});
    run_cuda_ranks(kRanks, false, [&](World& world) { leave_after_combine_async(world, scenario, with_handle); });
  }
}

TEST_F(EmulatedLeaving, SendsResultsOfACombineWithAHandle) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) leave(reduction, reduction, true);
}
TEST_F(EmulatedLeaving, SendsResultsOfACombineThatChoosesItsReduction) {
  for (const Reduction chosen : {Reduction::by_rank, Reduction::exact})
    for (const bool with_handle : {false, true}) leave(Reduction::either, chosen, with_handle);
}

// CUDA refuses to wait for a device with a captured stream, and ends the capture. It lets a thread free memory then
// that says so.
TEST_F(EmulatedLeaving, WaitsForItsKernelsWhileAStreamIsCaptured) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for("mxfp8");
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  const int before = emulated::unmaps_before_kernels_ended();
  run_cuda_ranks(kRanks, false, [&](World& world) {
    cuda::cuda_check(cudaSetDevice(world.rank()), "cudaSetDevice");
    const Stream captured(world.rank()), stream(world.rank());
    DeviceRound round(scenario, world.rank());
    auto exchange = std::make_unique<Exchange>(world, settings.shape, settings.options);
    exchange->dispatch(round.in, round.out, {.stream = stream.get()});
    exchange->combine(round.combine_in, round.combine_out, {.stream = stream.get()});
    cuda::cuda_check(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeThreadLocal), "begin");
    exchange.reset();
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(captured.get(), &graph), cudaErrorStreamCaptureInvalidated);
    round.fetch(stream.get());
    round.host.check_tokens();
  });
  EXPECT_EQ(emulated::unmaps_before_kernels_ended(), before);
}

}  // namespace
}  // namespace ferry::test
