// Rounds that are enqueued far ahead on several streams of a GPU, and ranks that share one.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;
using testing::AllOf;
using testing::HasSubstr;

class GpuStreams : public GpuTest {};

// Enough tokens for as many blocks as may be resident.
ScenarioSettings scenario_settings(int ranks, std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = {ranks, 8 * ranks, 4, 700, 2048};
  settings.options = conformance::options_for(seed % 2 == 0 ? "fp8_block128" : "bf16");
  settings.options.concurrent = 2;
  settings.options.deadline = std::chrono::seconds(20);
  settings.seed = seed;
  return settings;
}
Scenario scenario_of(int ranks, std::uint64_t seed) {
  return conformance::make_scenario(scenario_settings(ranks, seed));
}

// Design: a kernel that waits has no more blocks than the device holds beside those of the other exchange. Ranks
// enqueue in different orders, so that the GPUs run different exchanges first.
TEST_F(GpuStreams, OfTwoExchangesAndOfRanksThatShareAGpuDoNotHoldEachOtherUp) {
  constexpr int kPairs = 40;
  const int ranks = std::min(2 * num_cuda_devices(), 8);
  const int of_each = ranks_per_gpu(ranks);
  const Scenario scenarios[] = {scenario_of(ranks, 2), scenario_of(ranks, 3)};
  const auto body = [&](World& world) {
    const int device = world.rank() / of_each;
    cuda_check(cudaSetDevice(device), "cudaSetDevice");
    const Stream streams[] = {Stream(device), Stream(device)};
    Exchange first(world, scenarios[0].settings.shape, scenarios[0].settings.options);
    Exchange second(world, scenarios[1].settings.shape, scenarios[1].settings.options);
    Exchange* const exchanges[] = {&first, &second};
    DeviceRound rounds[] = {{scenarios[0], world.rank()}, {scenarios[1], world.rank()}};
    world.barrier();
    const auto enqueue = [&](int which) {
      const CallOptions call{.stream = streams[which]};
      exchanges[which]->dispatch(rounds[which].in, rounds[which].out, call);
      exchanges[which]->combine(rounds[which].combine_in, rounds[which].combine_out, call);
    };
    const int before = world.rank() % 2;
    for (int turn = 0; turn < kPairs / 2; ++turn) enqueue(before);
    for (int turn = 0; turn < kPairs / 2; ++turn) {
      enqueue(1 - before);
      enqueue(before);
    }
    for (int turn = 0; turn < kPairs / 2; ++turn) enqueue(1 - before);
    world.barrier();  // all is enqueued: what follows may wait for whole devices
    for (DeviceRound& round : rounds) round.fetch();
    world.barrier();
    for (DeviceRound& round : rounds) {
      round.host.check_rows();
      round.host.check_tokens();
    }
  };
  run_cuda_ranks(ranks, false, body, of_each);
}

// Three rounds of two ranks on one GPU; rank 1 is late with every combine.
void run_with_a_late_rank(const char* routing, int tokens) {
  ScenarioSettings settings = scenario_settings(2, 3);
  settings.options.concurrent = 1;
  settings.routing = routing;
  settings.shape.max_tokens = tokens;
  const Scenario scenario = conformance::make_scenario(settings);
  const auto body = [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    const Stream stream(0);
    const CallOptions call{.stream = stream};
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    DeviceRound round(scenario, world.rank());
    world.barrier();
    for (int turn = 0; turn < 3; ++turn) {
      exchange.dispatch(round.in, round.out, call);
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      exchange.combine(round.combine_in, round.combine_out, call);
    }
    world.barrier();
    round.fetch();
    world.barrier();
    round.host.check_rows();
    round.host.check_tokens();
  };
  run_cuda_ranks(2, false, body, 2);
}

// Tokens stay on their rank, so rank 0 need not wait for rank 1's combine: its next dispatch runs first, on as many
// multiprocessors as it may have, and waits for rank 1.
TEST_F(GpuStreams, OfALateRankFindRoomBesideOneThatIsARoundAhead) { run_with_a_late_rank("own_rank", 700); }

// So few tokens leave teams without one in each block of combine: these are over, and the next dispatch could begin.
TEST_F(GpuStreams, OfALateRankFindRoomBesideOneThatWaitsForIt) { run_with_a_late_rank("uniform", 150); }

// What exchanges of a shared GPU leave behind goes when the next one is made, also where nothing is sent.
TEST_F(GpuStreams, OfExchangesThatAreGoneKeepNoMemory) {
  for (const bool skips : {false, true}) {
    Scenario scenario = scenario_of(2, 2);
    scenario.settings.options.skip_a2a = skips;
    const auto body = [&](World& world) {
      cuda_check(cudaSetDevice(0), "cudaSetDevice");
      std::size_t before = 0, after = 0, total = 0;
      std::size_t of_one = 0;
      for (int turn = 0; turn < 12; ++turn) {
        const Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
        of_one = exchange.memory_bytes();
        world.barrier();
        if (turn == 1) cuda_check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
        if (turn == 11) cuda_check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
        world.barrier();
      }
      EXPECT_LT(before, after + 5 * of_one) << "of " << of_one << " bytes each, 2 ranks, 10 exchanges";
    };
    run_cuda_ranks(2, false, body, 2);
  }
}

// What memory_use and cuda_state_bytes say is what is gone from the device, but for the sizes in which CUDA gives it.
TEST_F(GpuStreams, OfAnExchangeTakeTheMemoryThatWasSaid) {
  const Scenario scenario = conformance::make_scenario([] {
    ScenarioSettings settings;
    settings.shape = {.ranks = 1, .experts = 64, .top_k = 8, .max_tokens = 4096, .hidden = 1024};
    settings.options = conformance::options_for("bf16");
    return settings;
  }());
  const Shape& shape = scenario.settings.shape;
  const ExchangeOptions& options = scenario.settings.options;
  run_cuda_ranks(1, false, [&](World& world) {
    { const Exchange first(world, shape, options); }  // loads the kernels
    std::size_t before = 0, after = 0, total = 0;
    cuda_check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
    const Exchange exchange(world, shape, options);
    cuda_check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    const std::size_t said = memory_use(shape, options).total + cuda_state_bytes(shape, options);
    EXPECT_GE(cuda_state_bytes(shape, options), std::size_t{4096} * 8 * 8);
    EXPECT_GE(before - after + (std::size_t{2} << 20), said);
    EXPECT_LE(before - after, said + (std::size_t{8} << 20));
  });
}

// Kernels are the device's, and so are their limits: an exchange that needs less shared memory does not lower them.
TEST_F(GpuStreams, OfALargeExchangeGoOnBesideASmallOne) {
  const auto scenario_for = [](int hidden) {
    ScenarioSettings settings;
    settings.shape = {1, 24, 8, 300, hidden};
    settings.options = conformance::options_for("fp8_block128");
    return conformance::make_scenario(settings);
  };
  const Scenario large = scenario_for(7168);
  const Scenario small = scenario_for(128);
  run_cuda_ranks(1, false, [&](World& world) {
    Exchange first(world, large.settings.shape, large.settings.options);
    Exchange second(world, small.settings.shape, small.settings.options);
    DeviceRound round(large, 0);
    first.dispatch(round.in, round.out);
    first.combine(round.combine_in, round.combine_out);
    round.fetch();
    round.host.check_rows();
    round.host.check_tokens();
  });
}

// One rank's kernel would wait for the end of the other's.
TEST_F(GpuStreams, OfAllAreRefusedWhereRanksShareAGpu) {
  const Scenario scenario = scenario_of(2, 2);
  const auto body = [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    DeviceRound round(scenario, world.rank());
    world.barrier();
    try {
      exchange.dispatch(round.in, round.out);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("stream"), HasSubstr("share device 0")));
    }
    world.barrier();
  };
  run_cuda_ranks(2, false, body, 2);
}

// A call on another stream than the last one waits for it. Else the combine would sum before its dispatch has begun,
// which the host holds up.
TEST_F(GpuStreams, OfOneExchangeKeepTheOrderOfItsCalls) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 1, .experts = 8, .top_k = 3, .max_tokens = 40, .hidden = 256};
  settings.options = conformance::options_for("fp8_block128");
  const Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    const Stream first(0);
    const Stream second(0);
    Exchange exchange(world, settings.shape, settings.options);
    for (int turn = 0; turn < 3; ++turn) {
      DeviceRound round(scenario, 0);
      const auto late = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
      cuda_check(cudaLaunchHostFunc(first.get(), late, nullptr), "cudaLaunchHostFunc");
      exchange.dispatch_async(round.in, {.stream = first});
      exchange.dispatch_wait(round.out, {.stream = second});
      cuda_check(cudaLaunchHostFunc(second.get(), late, nullptr), "cudaLaunchHostFunc");
      exchange.combine(round.combine_in, round.combine_out, {.stream = turn == 2 ? nullptr : first.get()});
      round.fetch();
      round.host.check_rows();
      round.host.check_tokens();
    }
  });
}

// In a capture the order is an edge of the graph, and nothing of it reaches outside.
TEST_F(GpuStreams, OfOneCaptureKeepTheOrderOfItsCalls) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 1, .experts = 8, .top_k = 3, .max_tokens = 40, .hidden = 256};
  settings.options = conformance::options_for("bf16");
  const Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    const Stream first(0);
    const Stream second(0);
    cuda::DeviceEvent forked;
    cuda::DeviceEvent joined;
    forked.create();
    joined.create();
    Exchange exchange(world, settings.shape, settings.options);
    DeviceRound eager(scenario, 0);
    exchange.dispatch(eager.in, eager.out, {.stream = second});  // no call of the capture waits for it
    exchange.combine(eager.combine_in, eager.combine_out, {.stream = second});
    eager.fetch();
    DeviceRound round(scenario, 0);
    const CapturedGraph graph(first.get(), [&] {
      cuda_check(cudaEventRecord(forked.get(), first.get()), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(second.get(), forked.get()), "cudaStreamWaitEvent");
      exchange.dispatch(round.in, round.out, {.stream = first});
      exchange.combine(round.combine_in, round.combine_out, {.stream = second});
      cuda_check(cudaEventRecord(joined.get(), second.get()), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(first.get(), joined.get()), "cudaStreamWaitEvent");
    });
    for (int replay = 0; replay < 3; ++replay) graph.launch(first.get());
    cuda_check(cudaStreamSynchronize(first.get()), "cudaStreamSynchronize");
    round.fetch();
    round.host.check_rows();
    round.host.check_tokens();
    exchange.dispatch(eager.in, eager.out, {.stream = second});  // nor does a call outside wait for the capture
    exchange.combine(eager.combine_in, eager.combine_out, {.stream = first});
    eager.fetch();
    eager.host.check_tokens();
  });
}

// A warm-up on the default stream, then a capture of a stream that waits for the default one, as streams do unless they
// are made not to: whatever touches the default stream meanwhile ends such a capture.
TEST_F(GpuStreams, MayBeCapturedBehindAWarmUpOnTheDefaultStream) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 1, .experts = 8, .top_k = 3, .max_tokens = 40, .hidden = 256};
  settings.options = conformance::options_for("bf16");
  const Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    cudaStream_t blocking = nullptr;
    cuda_check(cudaStreamCreate(&blocking), "cudaStreamCreate");
    {
      Exchange exchange(world, settings.shape, settings.options);
      DeviceRound round(scenario, 0);
      const auto pair = [&](cudaStream_t stream) {
        exchange.dispatch(round.in, round.out, {.stream = stream});
        exchange.combine(round.combine_in, round.combine_out, {.stream = stream});
      };
      pair(nullptr);
      const CapturedGraph graph(blocking, [&] { pair(blocking); });
      for (int replay = 0; replay < 3; ++replay) {
        round.reset(blocking);
        graph.launch(blocking);
        cuda_check(cudaStreamSynchronize(blocking), "cudaStreamSynchronize");
        round.fetch();
        round.host.check_rows();
        round.host.check_tokens();
      }
      pair(nullptr);
      round.fetch();
      round.host.check_tokens();
    }
    cuda_check(cudaStreamDestroy(blocking), "cudaStreamDestroy");
  });
}

}  // namespace
}  // namespace ferry::test
