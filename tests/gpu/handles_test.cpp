// Handles in memory of a GPU: kept over other rounds, moved, used in captured graphs and beside them, and bytes that
// are none. Ranks share a GPU where there are few, so all memory is made before the first call and kept until the last:
// to make or free it is to wait for the device, where another rank's kernel may wait for this one. The emulated suite
// runs these tests, too. The conformance suite has more sequences, with handles in host memory.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstring>
#include <functional>

#include "conformance/rounds/handle_sequence.h"
#include "ferry/detail/layout/handle_header.h"
#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/handle_round.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using testing::AllOf;
using testing::HasSubstr;

const int kRanks = allowed_ranks(4);
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

class GpuHandles : public GpuTest {};

void run(const std::function<void(World&)>& body) { run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks)); }

using Rank = HandleRank;

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

// I17: rank 1 makes `call` with a handle that the exchange refuses. That ends the exchange on all ranks, long before a
// deadline. `says`: what the error of rank 1 says.
void expect_end(const Scenario& scenario, const std::function<void(Rank&, HandleRound&, Handle&)>& call,
                const std::string& name, const std::string& says) {
  run([&](World& world) {
    Rank rank(world, scenario);
    Handle handle(rank.exchange);
    HandleRound round(scenario, world.rank());
    world.barrier();
    rank.keep(round, handle);
    call(rank, round, handle);
    rank.wait();
    world.barrier();
    try {
      rank.exchange.check();
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing, but " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), world.rank() == 1 ? AllOf(HasSubstr("rank 1"), HasSubstr(says))
                                                  : AllOf(HasSubstr("rank 1 gave " + name), HasSubstr("handle")));
    }
    world.barrier();
  });
}

// `at`: a byte of the handle that changes.
void expect_end_by(Operation operation, std::size_t at = offsetof(HandleHeader, ranks),
                   const std::string& says = "ranks is") {
  const bool dispatches = operation == Operation::dispatch;
  expect_end(
      scenario_of(8),
      [&](Rank& rank, HandleRound& round, Handle& handle) {
        if (rank.exchange.rank() == 1) handle.spoil(at, rank.stream.get());
        if (dispatches)
          rank.exchange.dispatch(round.replayed(handle), round.out, rank.call);
        else
          rank.exchange.combine(round.returned(handle), round.combine_out, rank.call);
      },
      dispatches ? "dispatch" : "combine", says);
}

TEST_F(GpuHandles, ThatAreNoneEndTheExchangeInACombine) { expect_end_by(Operation::combine); }
TEST_F(GpuHandles, ThatAreNoneEndTheExchangeInADispatch) { expect_end_by(Operation::dispatch); }
TEST_F(GpuHandles, WithAnyFieldOfAnotherExchangeEndTheExchange) {
  expect_end_by(Operation::combine, offsetof(HandleHeader, magic), "its first word is");
  expect_end_by(Operation::dispatch, offsetof(HandleHeader, num_tokens), "number of tokens is");
  expect_end_by(Operation::dispatch, offsetof(HandleHeader, order), "it must be by_expert.");
  expect_end_by(Operation::combine, offsetof(HandleHeader, order), "order of rows is");
  expect_end_by(Operation::dispatch, offsetof(HandleHeader, alignment), "alignment is");
  const HandleHeader header{};
  for_each_shape_field([&](HandleField field, const char* name, std::int32_t HandleHeader::*member) {
    if (field == HandleField::order || field == HandleField::ranks) return;
    const auto at = reinterpret_cast<const std::byte*>(&(header.*member)) - reinterpret_cast<const std::byte*>(&header);
    expect_end_by(Operation::combine, static_cast<std::size_t>(at), std::string(name) + " is");
  });
}

// As CPU ranks refuse them, before anything moves. Here only a kernel sees what the handle says.
TEST_F(GpuHandles, RefuseWeightsThatNobodyCanUse) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source}) {
    Scenario scenario = scenario_of(8, Reduction::by_rank, {order});
    scenario.settings.options.late_weights = true;
    if (order == RowOrder::by_source) scenario.settings.weights = conformance::WeightForm::none;
    scenario = conformance::make_scenario(scenario.settings);
    expect_end(
        scenario,
        [&](Rank& rank, HandleRound& round, Handle& handle) {
          CombineInput in = round.returned(handle);
          // Nobody reads them: any memory will do.
          if (rank.exchange.rank() == 1)
            in.topk_weights = {round.in.topk_ids.data, DType::f32, {round.in.tokens.shape[0], 3}};
          rank.exchange.combine(in, round.combine_out, rank.call);
        },
        "combine", order == RowOrder::by_source ? "rows by_source" : "had been given some");
  }
}

// The shape of weights that go home says which rows a handle must have. It makes no rows of sums.
TEST_F(GpuHandles, OfRowsThatAreSumsAreNotCombinedExactly) {
  for (const bool returns_weights : {false, true}) {
    Scenario scenario = scenario_of(8, Reduction::either, {RowOrder::by_source});
    scenario.settings.options.returns_weights = returns_weights;
    scenario = conformance::make_scenario(scenario.settings);
    expect_end(
        scenario,
        [](Rank& rank, HandleRound& round, Handle& handle) {
          CombineInput in = round.returned(handle);
          if (rank.exchange.rank() == 1) in.reduction = Reduction::exact;
          rank.exchange.combine(in, round.combine_out, rank.call);
        },
        "combine", "was exact, and its handle is of rows by_source");
  }
}

// A mask only grows: a handle's mask may not have a rank that the call's lacks.
TEST_F(GpuHandles, OfALargerMaskEndTheExchange) {
  for (const Operation operation : {Operation::combine, Operation::dispatch})
    expect_end_by(operation, sizeof(HandleHeader) + kRanks - 1,
                  "whether the mask of the call has all ranks of its mask");
}

// Kernels that heed the room of a handle are there only behind a dispatch that left such a one.
TEST_F(GpuHandles, ThatLackRowsComeFromADispatchOfTheirWorld) {
  for (const Operation operation : {Operation::combine, Operation::dispatch})
    expect_end_by(operation, offsetof(HandleHeader, row_room), "had room for 63 rows");
}

}  // namespace
}  // namespace ferry::test
