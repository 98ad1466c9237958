// Handles in memory of a GPU: kept over other rounds, moved, replayed in a captured graph, and bytes that are none.
// Ranks share one GPU where there is one. The conformance suite has more sequences, with handles in host memory.
#include <gmock/gmock.h>

#include <cstring>

#include "conformance/handle_sequence.h"
#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;
using cuda::DeviceMemory;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 4;

Scenario scenario_of(std::uint64_t seed, const char* format = "mxfp8", Reduction reduction = Reduction::by_rank) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, 40, 288};
  settings.options = conformance::options_for(format, reduction);
  settings.routing = seed % 2 == 0 ? "uniform" : "ragged";
  settings.seed = seed;
  return conformance::make_scenario(settings);
}

class GpuHandles : public testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
};

// One rank's handle on its GPU.
class Handle {
 public:
  explicit Handle(const Exchange& exchange)
      : bytes_(exchange.layout().handle_bytes),
        memory_(std::make_unique<DeviceMemory>(static_cast<std::size_t>(bytes_))) {}
  Tensor tensor() const { return {memory_->data(), DType::u8, {bytes_}}; }
  // The handle lies elsewhere after this, and where it lay are other bytes. The kernels that use it have ended.
  void move() {
    auto elsewhere = std::make_unique<DeviceMemory>(static_cast<std::size_t>(bytes_));
    std::vector<std::byte> host(static_cast<std::size_t>(bytes_));
    cuda_check(cudaMemcpy(host.data(), memory_->data(), host.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    cuda_check(cudaMemcpy(elsewhere->data(), host.data(), host.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    cuda_check(cudaMemset(memory_->data(), 0xa5, host.size()), "cudaMemset");
    memory_.swap(elsewhere);
    graveyard_.push_back(std::move(elsewhere));  // freeing waits for kernels
  }
  void spoil(std::size_t at) {
    std::byte value{};
    cuda_check(cudaMemcpy(&value, memory_->data() + at, 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
    value ^= std::byte{0x40};
    cuda_check(cudaMemcpy(memory_->data() + at, &value, 1, cudaMemcpyHostToDevice), "cudaMemcpy");
  }

 private:
  std::int64_t bytes_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<std::unique_ptr<DeviceMemory>> graveyard_;
};

DispatchInput input_with(const DeviceRound& round, const Handle& handle) {
  DispatchInput in = round.in;
  in.topk_ids = {};
  in.topk_weights = {};
  in.handle = handle.tensor();
  return in;
}

// Ranks share a GPU, and memory is made and freed in each call. That may wait for the kernels of all ranks. So nobody
// makes memory before all are done, and no kernel starts before all have theirs.
struct Rank {
  Rank(World& of_rank, const Scenario& first)
      : world(of_rank),
        stream(0),
        call{.stream = stream},
        exchange(of_rank, first.settings.shape, first.settings.options) {}
  void keep(const Scenario& scenario, const Handle& handle) {
    DeviceRound round(scenario, exchange.rank());
    world.barrier();
    round.out.handle = handle.tensor();
    exchange.dispatch(round.in, round.out, call);
    wait();
    world.barrier();
    round.fetch();
    round.host.check_rows();
  }
  void replay(const Scenario& scenario, const Handle& handle) {
    DeviceRound round(scenario, exchange.rank());
    world.barrier();
    exchange.dispatch(input_with(round, handle), round.out, call);
    wait();
    world.barrier();
    round.fetch();
    round.host.check_rows();
  }
  void combine(const Scenario& scenario, const Handle& handle, bool split) {
    DeviceRound round(scenario, exchange.rank());
    world.barrier();
    round.combine_in.handle = handle.tensor();
    if (split) {
      exchange.combine_async(round.combine_in, call);
      exchange.combine_wait(round.combine_out, call);
    } else {
      exchange.combine(round.combine_in, round.combine_out, call);
    }
    wait();
    world.barrier();
    round.fetch();
    exchange.check();
    round.host.check_tokens();
  }
  void wait() const { cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }

  World& world;
  Stream stream;
  CallOptions call;
  Exchange exchange;
};

TEST_F(GpuHandles, AreGoodAfterManyOtherRounds) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const Scenario a = scenario_of(2, "mxfp8", reduction);
    const Scenario b = scenario_of(3, "mxfp8", reduction);
    const Scenario other_tokens = with_other_tokens(a, a.settings, 4);
    const auto body = [&](World& world) {
      cuda_check(cudaSetDevice(0), "cudaSetDevice");
      Rank rank(world, a);
      Handle first(rank.exchange);
      Handle second(rank.exchange);
      rank.keep(a, first);
      rank.keep(b, second);
      rank.combine(a, first, false);
      rank.combine(b, second, true);
      rank.combine(a, first, true);
      for (int i = 0; i < 20; ++i) rank.keep(b, second);
      world.barrier();  // what allocates may wait for the device
      first.move();
      world.barrier();
      rank.combine(other_tokens, first, false);
      rank.replay(other_tokens, first);
      rank.combine(other_tokens, first, true);
      world.barrier();
    };
    run_cuda_ranks(kRanks, false, body, kRanks);
  }
}

// A combine in a graph has another number in every replay.
TEST_F(GpuHandles, CombineInACapturedGraph) {
  const Scenario scenario = scenario_of(6);
  const auto body = [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    Rank rank(world, scenario);
    const Handle handle(rank.exchange);
    rank.keep(scenario, handle);
    DeviceRound round(scenario, world.rank());
    round.combine_in.handle = handle.tensor();
    const CapturedGraph graph(rank.stream.get(),
                              [&] { rank.exchange.combine(round.combine_in, round.combine_out, rank.call); });
    rank.wait();
    world.barrier();
    for (int replay = 0; replay < 10; ++replay) {
      cuda_check(cudaMemsetAsync(round.combine_out.tokens.data, 0xa5, round.host.output.size() - 64, rank.stream.get()),
                 "cudaMemsetAsync");
      graph.launch(rank.stream.get());
      rank.wait();
      round.fetch();
      rank.exchange.check();
      round.host.check_tokens();
    }
    world.barrier();
  };
  run_cuda_ranks(kRanks, false, body, kRanks);
}

// I17: a handle that is none ends the exchange on all ranks, long before a deadline.
TEST_F(GpuHandles, ThatAreNoneEndTheExchangeOnAllRanks) {
  const Scenario scenario = scenario_of(8);
  const auto body = [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    Rank rank(world, scenario);
    Handle handle(rank.exchange);
    rank.keep(scenario, handle);
    if (world.rank() == 1) handle.spoil(16);  // ranks
    world.barrier();
    DeviceRound round(scenario, world.rank());
    round.combine_in.handle = handle.tensor();
    rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
    rank.wait();
    try {
      rank.exchange.check();
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), world.rank() == 1 ? AllOf(HasSubstr("rank 1"), HasSubstr("ranks is"))
                                                  : AllOf(HasSubstr("rank 1 gave combine"), HasSubstr("handle")));
    }
    world.barrier();
  };
  run_cuda_ranks(kRanks, false, body, kRanks);
}

}  // namespace
}  // namespace ferry::test
