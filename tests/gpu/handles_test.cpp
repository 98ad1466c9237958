// Handles in memory of a GPU: kept over other rounds, moved, used in captured graphs and beside them, and bytes that
// are none. Ranks share a GPU where there are few, so all memory is made before the first call and kept until the last:
// to make or free it is to wait for the device, where another rank's kernel may wait for this one. The emulated suite
// runs these tests, too. The conformance suite has more sequences, with handles in host memory.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstring>
#include <functional>

#include "conformance/handle_sequence.h"
#include "ferry/detail/layout/handle_header.h"
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
constexpr int kReplays = 10;

Scenario scenario_of(std::uint64_t seed, Reduction reduction = Reduction::by_rank,
                     const std::vector<RowOrder>& orders = {}, const char* results = "bf16") {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, 40, 288};
  settings.options = conformance::options_for("mxfp8", reduction);
  settings.options.result_format = result_format_named(results);
  settings.row_orders = orders;
  if (!orders.empty()) settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded};
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

void run(const std::function<void(World&)>& body) { run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks)); }

// One rank's handle on its GPU.
class Handle {
 public:
  explicit Handle(const Exchange& exchange)
      : bytes_(exchange.layout().handle_bytes), memory_(make()), elsewhere_(make()), host_(size()) {}
  Tensor tensor() const { return {memory_->data(), DType::u8, {bytes_}}; }
  // The handle lies elsewhere after this, and where it lay are other bytes.
  void move(cudaStream_t stream) {
    fetch(stream);
    cuda_check(cudaMemcpyAsync(elsewhere_->data(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
    cuda_check(cudaMemsetAsync(memory_->data(), 0xa5, host_.size(), stream), "cudaMemsetAsync");
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    memory_.swap(elsewhere_);
  }
  void spoil(std::size_t at, cudaStream_t stream) {
    fetch(stream);
    host_[at] ^= std::byte{0x40};
    cuda_check(cudaMemcpyAsync(memory_->data(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(bytes_); }
  std::unique_ptr<DeviceMemory> make() const { return std::make_unique<DeviceMemory>(size()); }
  void fetch(cudaStream_t stream) {
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cuda_check(cudaMemcpyAsync(host_.data(), memory_->data(), host_.size(), cudaMemcpyDeviceToHost, stream),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  std::int64_t bytes_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<DeviceMemory> elsewhere_;
  std::vector<std::byte> host_;
};

// A round with a handle, in memory of its own.
struct HandleRound : DeviceRound {
  HandleRound(const Scenario& scenario, int rank) : DeviceRound(scenario, rank) {}
  DispatchInput replayed(const Handle& handle) const {
    DispatchInput given = in;
    given.topk_ids = {};
    given.topk_weights = {};
    given.handle = handle.tensor();
    return given;
  }
  DispatchOutput leaving(const Handle& handle) const {
    DispatchOutput left = out;
    left.handle = handle.tensor();
    return left;
  }
  CombineInput returned(const Handle& handle) const {
    CombineInput given = combine_in;
    given.handle = handle.tensor();
    return given;
  }
};

struct Rank {
  Rank(World& of_rank, const Scenario& first)
      : world(of_rank),
        device(of_rank.rank() / ranks_per_gpu(kRanks)),
        stream(device),
        call{.stream = stream},
        exchange(of_rank, first.settings.shape, first.settings.options) {
    cuda_check(cudaSetDevice(device), "cudaSetDevice");
  }
  void keep(HandleRound& round, const Handle& handle) {
    round.reset(stream.get());
    exchange.dispatch(round.in, round.leaving(handle), call);
    check_rows(round);
  }
  void replay(HandleRound& round, const Handle& handle) {
    round.reset(stream.get());
    exchange.dispatch(round.replayed(handle), round.out, call);
    check_rows(round);
  }
  void combine(HandleRound& round, const Handle& handle, bool split = false) {
    round.reset(stream.get());
    if (split) {
      exchange.combine_async(round.returned(handle), call);
      exchange.combine_wait(round.combine_out, call);
    } else {
      exchange.combine(round.returned(handle), round.combine_out, call);
    }
    check_tokens(round);
  }
  void combine_newest(HandleRound& round) {
    round.reset(stream.get());
    exchange.combine(round.combine_in, round.combine_out, call);
    check_tokens(round);
  }
  void wait() const { cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
  // A wait that failed is thrown before bytes are compared.
  void check_rows(HandleRound& round) {
    round.fetch(stream.get());
    exchange.check();
    round.host.check_rows();
  }
  void check_tokens(HandleRound& round) {
    round.fetch(stream.get());
    exchange.check();
    round.host.check_tokens();
  }

  World& world;
  int device;
  Stream stream;
  CallOptions call;
  Exchange exchange;
};

TEST_F(GpuHandles, AreGoodAfterManyOtherRounds) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const Scenario a = scenario_of(2, reduction);
    const Scenario b = scenario_of(3, reduction);
    const Scenario other_tokens = with_other_tokens(a, a.settings, 4);
    run([&](World& world) {
      Rank rank(world, a);
      Handle first(rank.exchange), second(rank.exchange);
      HandleRound of_a(a, world.rank()), of_b(b, world.rank()), of_others(other_tokens, world.rank());
      world.barrier();
      rank.keep(of_a, first);
      rank.keep(of_b, second);
      rank.combine(of_a, first);
      rank.combine(of_b, second, true);
      rank.combine(of_a, first, true);
      for (int i = 0; i < 20; ++i) rank.keep(of_b, second);
      world.barrier();  // CUDA may load a kernel of its own to fill memory, and waits for the device
      first.move(rank.stream.get());
      world.barrier();
      rank.combine(of_others, first);
      rank.replay(of_others, first);
      rank.combine(of_others, first, true);
      world.barrier();
    });
  }
}

// Handles of ranks whose rows lie in different orders, and of tokens with other weights than 1: a replay by_source says
// the weights of the handle's dispatch.
TEST_F(GpuHandles, OfRanksOfDifferentOrders) {
  const Scenario a = scenario_of(2, Reduction::by_rank, {RowOrder::by_source, RowOrder::by_expert});
  const Scenario b = scenario_of(3, Reduction::by_rank, {RowOrder::padded, RowOrder::by_source});
  const Scenario other_tokens = with_other_tokens(a, a.settings, 4);
  run([&](World& world) {
    Rank rank(world, a);
    Handle first(rank.exchange), second(rank.exchange);
    HandleRound of_a(a, world.rank()), of_b(b, world.rank()), of_others(other_tokens, world.rank());
    world.barrier();
    rank.keep(of_a, first);
    rank.keep(of_b, second);
    rank.combine_newest(of_b);
    rank.combine(of_a, first);
    rank.combine(of_b, second, true);
    rank.replay(of_others, first);
    rank.combine(of_others, first, true);
    rank.combine(of_b, second);
    world.barrier();
  });
}

// A combine in a graph has another number in every replay.
void combine_in_a_captured_graph(const Scenario& scenario) {
  run([&](World& world) {
    Rank rank(world, scenario);
    const Handle handle(rank.exchange);
    HandleRound round(scenario, world.rank());
    const CapturedGraph graph(rank.stream.get(),
                              [&] { rank.exchange.combine(round.returned(handle), round.combine_out, rank.call); });
    rank.wait();
    world.barrier();
    rank.keep(round, handle);
    for (int replay = 0; replay < kReplays; ++replay) {
      round.reset(rank.stream.get());
      graph.launch(rank.stream.get());
      rank.check_tokens(round);
    }
    world.barrier();
  });
}
TEST_F(GpuHandles, CombineInACapturedGraph) { combine_in_a_captured_graph(scenario_of(6)); }
TEST_F(GpuHandles, CombineOfEncodedResultsInACapturedGraph) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    combine_in_a_captured_graph(scenario_of(6, reduction, {}, "nvfp4"));
}

// A dispatch that leaves a handle, one that is given it with other tokens, and a combine, each in a graph and all in
// one.
TEST_F(GpuHandles, DispatchInACapturedGraph) {
  const Scenario scenario = scenario_of(9);
  const Scenario other_tokens = with_other_tokens(scenario, scenario.settings, 5);
  run([&](World& world) {
    Rank rank(world, scenario);
    const Handle handle(rank.exchange);
    HandleRound round(scenario, world.rank()), of_others(other_tokens, world.rank());
    const auto keeps = [&] { rank.exchange.dispatch(round.in, round.leaving(handle), rank.call); };
    const auto replays = [&] { rank.exchange.dispatch(of_others.replayed(handle), of_others.out, rank.call); };
    const auto returns = [&] { rank.exchange.combine(of_others.returned(handle), of_others.combine_out, rank.call); };
    const CapturedGraph alone(rank.stream.get(), keeps);
    const CapturedGraph all(rank.stream.get(), [&] {
      keeps();
      replays();
      returns();
    });
    rank.wait();
    world.barrier();
    for (int replay = 0; replay < kReplays; ++replay) {
      round.reset(rank.stream.get());
      of_others.reset(rank.stream.get());
      if (replay % 2 == 0) {
        alone.launch(rank.stream.get());
        replays();
        returns();
      } else {
        all.launch(rank.stream.get());
      }
      rank.check_rows(round);
      rank.check_rows(of_others);
      rank.check_tokens(of_others);
    }
    world.barrier();
  });
}

// What the host knows of the calls is not what a replay did since: a combine takes a number of its own all the same,
// and waits for those before it.
TEST_F(GpuHandles, CallsBesideCapturedGraphs) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const Scenario a = scenario_of(2, reduction);
    const Scenario b = scenario_of(4, reduction);
    run([&](World& world) {
      Rank rank(world, a);
      cudaStream_t stream = rank.stream.get();
      const Handle first(rank.exchange), second(rank.exchange);
      HandleRound of_a(a, world.rank()), of_b(b, world.rank()), again(b, world.rank());
      const CapturedGraph kept(stream,
                               [&] { rank.exchange.combine(of_a.returned(first), of_a.combine_out, rank.call); });
      const CapturedGraph whole(stream, [&] {
        rank.exchange.dispatch(of_b.in, of_b.out, rank.call);
        rank.exchange.combine(of_b.combine_in, of_b.combine_out, rank.call);
      });
      const CapturedGraph newest(stream, [&] {
        rank.exchange.dispatch(again.in, again.out, rank.call);
        rank.exchange.combine(again.returned(second), again.combine_out, rank.call);
        rank.exchange.combine(again.combine_in, again.combine_out, rank.call);
      });
      rank.wait();
      world.barrier();
      rank.keep(of_a, first);
      for (int turn = 0; turn < 3; ++turn) {
        rank.keep(again, second);
        for (HandleRound* round : {&of_a, &of_b, &again}) round->reset(stream);
        kept.launch(stream);
        rank.exchange.combine(again.combine_in, again.combine_out, rank.call);  // of the newest dispatch
        rank.check_tokens(of_a);
        rank.check_tokens(again);
        for (HandleRound* round : {&of_a, &of_b, &again}) round->reset(stream);
        rank.exchange.dispatch(again.in, again.leaving(second), rank.call);
        whole.launch(stream);
        rank.exchange.combine(again.returned(second), again.combine_out, rank.call);
        kept.launch(stream);
        rank.check_tokens(of_b);
        rank.check_tokens(again);
        rank.check_tokens(of_a);
        again.reset(stream);
        newest.launch(stream);
        rank.check_tokens(again);
        rank.keep(of_b, second);
        rank.combine_newest(of_b);
        rank.keep(again, second);
      }
      world.barrier();
    });
  }
}

// I17: a handle that is none ends the exchange on all ranks, long before a deadline. `at`: a byte of it that changes.
void expect_end_by(Operation operation, std::size_t at = offsetof(HandleHeader, ranks), const char* says = "ranks is") {
  const Scenario scenario = scenario_of(8);
  const std::string name = operation == Operation::dispatch ? "dispatch" : "combine";
  run([&](World& world) {
    Rank rank(world, scenario);
    Handle handle(rank.exchange);
    HandleRound round(scenario, world.rank());
    world.barrier();
    rank.keep(round, handle);
    if (world.rank() == 1) handle.spoil(at, rank.stream.get());
    if (operation == Operation::dispatch)
      rank.exchange.dispatch(round.replayed(handle), round.out, rank.call);
    else
      rank.exchange.combine(round.returned(handle), round.combine_out, rank.call);
    rank.wait();
    world.barrier();
    try {
      rank.exchange.check();
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), world.rank() == 1 ? AllOf(HasSubstr("rank 1"), HasSubstr(says))
                                                  : AllOf(HasSubstr("rank 1 gave " + name), HasSubstr("handle")));
    }
    world.barrier();
  });
}

TEST_F(GpuHandles, ThatAreNoneEndTheExchangeInACombine) { expect_end_by(Operation::combine); }
TEST_F(GpuHandles, ThatAreNoneEndTheExchangeInADispatch) { expect_end_by(Operation::dispatch); }
// Kernels that heed the room of a handle are there only behind a dispatch that left such a one.
TEST_F(GpuHandles, ThatLackRowsComeFromADispatchOfTheirWorld) {
  for (const Operation operation : {Operation::combine, Operation::dispatch})
    expect_end_by(operation, offsetof(HandleHeader, row_room), "had room for 63 rows");
}

}  // namespace
}  // namespace ferry::test
