// What the host of a rank of emulated GPUs knows of calls that have not run: refused dispatches beside memory that was
// given back and beside a rank that leaves, streams around a capture, and errors that CUDA keeps.
#include <memory>
#include <optional>
#include <thread>

#include "emulated/refusing_rank.h"
#include "gpu/captured_graph.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

constexpr int kLeaves = 2;

class EmulatedHosts : public EmulatedGpus {};

// A dispatch with too many tokens at rank kOdd, which the others have not heard of.
void refuse_unasked(RefusingRank& rank, DeviceRound& round) {
  const DispatchInput in = rank.refused_input(round);
  if (rank.is_odd())
    rank.expect_refused("dispatch", [&] { rank.exchange.dispatch(in, round.out, rank.call); });
  else
    rank.exchange.dispatch(in, round.out, rank.call);
  rank.wait();
}

// Who had too many is said in memory that is not there until restore().
TEST_F(EmulatedHosts, ThrowARefusalWhenTheMemoryIsThereAgain) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 9));
  run_cuda_ranks(kRefusingRanks, false, [&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    refuse_unasked(rank, round);
    rank.exchange.release(rank.call);
    for (int i = 0; i < 2; ++i) rank.exchange.check();
    rank.exchange.restore(rank.call);
    if (!rank.is_odd()) rank.expect_refused("check", [&] { rank.exchange.check(); });
    rank.good_round(scenario);
  });
}

// The kernel that forgets the refused dispatch has not run when the rank says what it has sent.
TEST_F(EmulatedHosts, SendWhatTheyCalledAfterARefusal) {
  ScenarioSettings settings = settings_of({RowOrder::by_expert}, 9);
  settings.options.deadline = std::chrono::minutes(10);
  const Scenario scenario = conformance::make_scenario(settings);
  emulated::reset({.slow_device = kLeaves});
  run_cuda_ranks(kRefusingRanks, false, [&](World& world) {
    auto rank = std::make_unique<RefusingRank>(world, scenario);
    DeviceRound refused(scenario, world.rank()), round(scenario, world.rank());
    refuse_unasked(*rank, refused);
    if (!rank->is_odd()) rank->expect_refused("check", [&] { rank->exchange.check(); });
    world.barrier();
    std::optional<emulated::Hold> hold;
    if (world.rank() == 0) hold.emplace();
    world.barrier();
    rank->exchange.dispatch(round.in, round.out, rank->call);
    if (world.rank() == kLeaves) {
      rank.reset();  // says that it leaves, and then waits for its kernels
      return world.barrier();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    hold.reset();
    rank->wait();
    rank->check_rows(round);
    world.barrier();
  });
}

// Else the caller's next look at CUDA's errors finds one of Ferry's.
TEST_F(EmulatedHosts, LeaveNoErrorOfAQueryBehind) {
  const Scenario scenario = conformance::make_scenario(settings_of({RowOrder::by_expert}, 9));
  run_cuda_ranks(kRefusingRanks, false, [&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    if (rank.is_odd()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    rank.exchange.dispatch_async(round.in, rank.call);
    rank.exchange.wait_for_counts(rank.call);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "rank " << world.rank();
    rank.exchange.dispatch_wait(round.out, rank.call);
    rank.check_rows(round);
  });
}

// A call waits for the last one that was not captured, whatever was captured in between. Streams of emulated GPUs
// cannot wait for others, so the wait is an error here.
TEST_F(EmulatedHosts, FollowTheLastCallThatWasNotCaptured) {
  ScenarioSettings settings = settings_of({RowOrder::by_expert}, 9);
  settings.shape = {.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 9, .hidden = 96};
  const Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    RefusingRank rank(world, scenario);
    HandleRound round(scenario, 0), captured(scenario, 0);
    const Handle handle(rank.exchange);
    const Stream capturing(0), other(0);
    rank.exchange.dispatch(round.in, round.leaving(handle), rank.call);
    const CapturedGraph graph(capturing.get(), [&] {
      rank.exchange.dispatch(captured.in, captured.out, {.stream = capturing});
      rank.exchange.combine(captured.combine_in, captured.combine_out, {.stream = capturing});
    });
    conformance::expect_error(0, "a call on another stream", ErrorKind::system, {"cudaStreamWaitEvent"}, [&] {
      rank.exchange.combine(round.returned(handle), round.combine_out, {.stream = other});
    });
    rank.exchange.combine(round.returned(handle), round.combine_out, rank.call);
    rank.check_rows(round);
    round.host.check_tokens();
  });
}

// A caller may destroy a stream when the exchange has had its next call.
TEST_F(EmulatedHosts, AskNoStreamOfAnEarlierCall) {
  ScenarioSettings settings = settings_of({RowOrder::by_expert}, 9);
  settings.shape = {.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 9, .hidden = 96};
  const Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound captured(scenario, 0);
    auto first = std::make_unique<Stream>(0);
    const Stream second(0);
    for (cudaStream_t stream : {first->get(), second.get()}) {
      const CapturedGraph graph(stream, [&] {
        rank.exchange.dispatch(captured.in, captured.out, {.stream = stream});
        rank.exchange.combine(captured.combine_in, captured.combine_out, {.stream = stream});
      });
      rank.good_round(scenario);
      first.reset();
    }
  });
}

// As after a warm-up: the default stream takes part in no capture, and a capture that it is touched beside is lost.
TEST_F(EmulatedHosts, TouchNoDefaultStreamBesideACapture) {
  ScenarioSettings settings = settings_of({RowOrder::by_expert}, 9);
  settings.shape = {.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 9, .hidden = 96};
  const Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    RefusingRank rank(world, scenario);
    DeviceRound round(scenario, 0);
    rank.exchange.dispatch(round.in, round.out, {});
    const CapturedGraph graph(rank.stream.get(), [&] { rank.exchange.dispatch(round.in, round.out, rank.call); });
    conformance::expect_error(0, "a call behind that of the default stream", ErrorKind::system, {"cudaStreamWaitEvent"},
                              [&] { rank.exchange.combine(round.combine_in, round.combine_out, rank.call); });
  });
}

// Its captured dispatch has run, so the others have its rows, and wait for results that never come.
TEST_F(EmulatedHosts, LeaveWhenTheirStreamsAreGone) {
  ScenarioSettings settings = settings_of({RowOrder::by_expert}, 9);
  settings.options.deadline = std::chrono::minutes(10);
  const Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(kRefusingRanks, false, [&](World& world) {
    auto rank = std::make_unique<RefusingRank>(world, scenario);
    DeviceRound round(scenario, world.rank());
    {
      const Stream stream(world.rank());
      const CapturedGraph graph(stream.get(),
                                [&] { rank->exchange.dispatch(round.in, round.out, {.stream = stream}); });
      graph.launch(stream.get());
      cuda::cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
      if (world.rank() != kLeaves) rank->exchange.check();
    }
    world.barrier();
    if (world.rank() == kLeaves) {
      cuda::cuda_check(cudaSetDevice(0), "cudaSetDevice");  // another one than the exchange's
      rank.reset();
      return;
    }
    conformance::expect_error(world.rank(), "a combine without the results of a rank", ErrorKind::aborted,
                              {"rank 2", "destroyed its exchange"}, [&] {
                                rank->exchange.combine(round.combine_in, round.combine_out, rank->call);
                                rank->wait();
                                rank->exchange.check();
                              });
  });
}

}  // namespace
}  // namespace ferry::test
