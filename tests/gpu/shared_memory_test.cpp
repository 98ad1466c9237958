// Exchanges of GPUs that share one memory: graphs that were captured before another exchange had it replay as they were
// when their own has it again.
#include <gtest/gtest.h>

#include <vector>

#include "conformance/rounds/rank_round.h"
#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 3;

conformance::Scenario scenario_of(const char* format, Reduction reduction, int hidden) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 6, hidden};
  settings.options = conformance::options_for(format, reduction);
  return conformance::make_scenario(settings);
}

int device_of(const World& world) { return world.rank() / ranks_per_gpu(kRanks); }

class GpuSharedMemory : public GpuTest {
 protected:
  const conformance::Scenario large_ = scenario_of("bf16", Reduction::exact, 128);
  const conformance::Scenario small_ = scenario_of("mxfp8", Reduction::by_rank, 64);
};

// An exchange, a round of it, and the graph of that round.
class CapturedRound {
 public:
  CapturedRound(Exchange& exchange, const conformance::Scenario& scenario, const World& world, const Stream& stream)
      : exchange_(exchange), stream_(stream), round_(scenario, world.rank()), graph_(stream.get(), [&] {
          exchange.dispatch(round_.in, round_.out, {.stream = stream.get()});
          exchange.combine(round_.combine_in, round_.combine_out, {.stream = stream.get()});
        }) {}

  void replay() {
    round_.reset(stream_.get());
    graph_.launch(stream_.get());
  }
  void check() {
    round_.fetch(stream_.get());  // other ranks of the device may still capture
    exchange_.check();
    round_.host.check_rows();
    round_.host.check_tokens();
  }

 private:
  Exchange& exchange_;
  const Stream& stream_;
  DeviceRound round_;
  CapturedGraph graph_;
};

TEST_F(GpuSharedMemory, LeavesCapturedGraphsGood) {
  run_cuda_ranks(
      kRanks, false,
      [&](World& world) {
        cuda::cuda_check(cudaSetDevice(device_of(world)), "cudaSetDevice");
        const Stream stream(device_of(world));
        const CallOptions call{.stream = stream.get()};
        Exchange large(world, large_.settings.shape, large_.settings.options);
        CapturedRound of_large(large, large_, world, stream);
        Exchange small(large, small_.settings.shape, small_.settings.options);
        CapturedRound of_small(small, small_, world, stream);
        const auto* const slots = large.arrival_slots().payload.as<std::byte>();
        for (int repeat = 0; repeat < 3; ++repeat) {
          for (int replay = 0; replay <= repeat; ++replay) of_small.replay();
          if (repeat != 1) of_small.check();  // else take_memory waits for the graph
          large.take_memory(call);
          of_large.replay();
          of_large.check();
          small.take_memory(call);
        }
        EXPECT_EQ(large.arrival_slots().payload.as<std::byte>(), slots);
      },
      ranks_per_gpu(kRanks));
}

TEST_F(GpuSharedMemory, IsNotTakenInACapture) {
  run_cuda_ranks(
      kRanks, false,
      [&](World& world) {
        cuda::cuda_check(cudaSetDevice(device_of(world)), "cudaSetDevice");
        const Stream stream(device_of(world));
        const CallOptions call{.stream = stream.get()};
        Exchange large(world, large_.settings.shape, large_.settings.options);
        Exchange small(large, small_.settings.shape, small_.settings.options);
        DeviceRound round(small_, world.rank());
        const auto refuses = [&](const char* place, const std::function<void()>& body) {
          conformance::expect_error(world.rank(), place, ErrorKind::out_of_order, {"captur"}, body);
        };
        const CapturedGraph graph(stream.get(), [&] {
          small.dispatch(round.in, round.out, call);
          for (const CallOptions& each : {call, CallOptions{}})
            refuses("take_memory", [&] { large.take_memory(each); });
          refuses("an exchange in its memory",
                  [&] { const Exchange third(small, small_.settings.shape, small_.settings.options); });
          small.combine(round.combine_in, round.combine_out, call);
        });
        graph.launch(stream.get());
        round.fetch(stream.get());
        small.check();
        round.host.check_rows();
        round.host.check_tokens();
        large.take_memory(call);
      },
      ranks_per_gpu(kRanks));
}

}  // namespace
}  // namespace ferry::test
