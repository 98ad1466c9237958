// Short handles in memory of a GPU, of not one byte more than they take: kept over other rounds, moved, in captured
// graphs and beside them, and such that have too few bytes. How memory is made: handles_test.cpp. The emulated suite
// runs these tests, too. The conformance suite has more, with handles in host memory.
#include <gmock/gmock.h>

#include <cstddef>
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

using conformance::handle_bytes_of;
using conformance::Scenario;
using conformance::ScenarioSettings;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

const int kRanks = allowed_ranks(4);

Scenario scenario_of(std::uint64_t seed, Reduction reduction = Reduction::by_rank,
                     const std::vector<RowOrder>& orders = {}, int max_tokens = 40) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, max_tokens, 288};
  settings.options = conformance::options_for("mxfp8", reduction);
  settings.options.short_handles = true;
  settings.row_orders = orders;
  if (!orders.empty()) settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded};
  settings.routing = seed % 2 == 0 ? "uniform" : "ragged";
  settings.seed = seed;
  return conformance::make_scenario(settings);
}

class GpuShortHandles : public GpuTest {};

void run(const std::function<void(World&)>& body) { run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks)); }

using Rank = HandleRank;

// With a whole one of the same exchange beside them.
void keep_and_use(const Scenario& a, const Scenario& b, int rounds) {
  const Scenario other_tokens = with_other_tokens(a, a.settings, 4);
  run([&](World& world) {
    Rank rank(world, a);
    Handle first(handle_bytes_of(rank.exchange, a)), second(handle_bytes_of(rank.exchange, b)), whole(rank.exchange);
    HandleRound of_a(a, world.rank()), of_b(b, world.rank()), of_others(other_tokens, world.rank());
    world.barrier();
    rank.keep(of_a, first);
    rank.keep(of_b, second);
    rank.combine_newest(of_b);
    rank.combine(of_a, first);
    rank.combine(of_b, second, true);
    rank.combine(of_a, first, true);
    for (int i = 0; i < rounds; ++i) rank.keep(of_b, i % 2 == 0 ? second : whole);
    world.barrier();  // CUDA may load a kernel of its own to fill memory, and waits for the device
    first.move(rank.stream.get());
    world.barrier();
    rank.combine(of_others, first);
    rank.replay(of_others, first);
    rank.combine(of_others, first, true);
    rank.combine(of_b, whole);
    of_others.reset(rank.stream.get());  // a replay that leaves one, in the place of its own
    DispatchOutput left = of_others.out;
    left.handle = first.tensor();
    rank.exchange.dispatch(of_others.replayed(first), left, rank.call);
    rank.check_rows(of_others);
    rank.combine(of_others, first);
    world.barrier();
  });
}
TEST_F(GpuShortHandles, AreGoodAfterManyOtherRounds) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    keep_and_use(scenario_of(2, reduction), scenario_of(3, reduction), 20);
}
TEST_F(GpuShortHandles, OfRanksOfDifferentOrders) {
  keep_and_use(scenario_of(2, Reduction::by_rank, {RowOrder::by_source, RowOrder::by_expert}),
               scenario_of(3, Reduction::by_rank, {RowOrder::padded, RowOrder::by_source}), 2);
}
TEST_F(GpuShortHandles, OfMoreTokensThanABlockHasThreads) {
  keep_and_use(scenario_of(2, Reduction::by_rank, {}, 600), scenario_of(3, Reduction::by_rank, {}, 600), 2);
}

// The halves of a dispatch with a handle and of a combine with one lie in each other.
TEST_F(GpuShortHandles, OfTwoCallsThatAreHalfDone) {
  const Scenario a = scenario_of(2), b = scenario_of(3);
  const Scenario replayed = with_other_tokens(b, b.settings, 6);
  run([&](World& world) {
    Rank rank(world, a);
    Handle first(handle_bytes_of(rank.exchange, a)), second(handle_bytes_of(rank.exchange, b));
    HandleRound of_a(a, world.rank()), of_b(b, world.rank()), again(replayed, world.rank());
    world.barrier();
    rank.keep(of_a, first);
    rank.keep(of_b, second);
    for (const bool dispatch_begins : {true, false}) {
      of_a.reset(rank.stream.get());
      again.reset(rank.stream.get());
      if (dispatch_begins) rank.exchange.dispatch_async(again.replayed(second), rank.call);
      rank.exchange.combine_async(of_a.returned(first), rank.call);
      if (!dispatch_begins) rank.exchange.dispatch_async(again.replayed(second), rank.call);
      rank.exchange.wait_for_counts(rank.call);
      rank.exchange.dispatch_wait(again.out, rank.call);
      rank.exchange.combine_wait(of_a.combine_out, rank.call);
      rank.check_rows(again);
      rank.check_tokens(of_a);
    }
    world.barrier();
  });
}

// A dispatch that leaves one, one that is given it with other tokens, and a combine, in one graph.
TEST_F(GpuShortHandles, InACapturedGraph) {
  const Scenario scenario = scenario_of(9);
  const Scenario other_tokens = with_other_tokens(scenario, scenario.settings, 5);
  run([&](World& world) {
    Rank rank(world, scenario);
    const Handle handle(handle_bytes_of(rank.exchange, scenario));
    HandleRound round(scenario, world.rank()), of_others(other_tokens, world.rank());
    const CapturedGraph all(rank.stream.get(), [&] {
      rank.exchange.dispatch(round.in, round.leaving(handle), rank.call);
      rank.exchange.dispatch(of_others.replayed(handle), of_others.out, rank.call);
      rank.exchange.combine(of_others.returned(handle), of_others.combine_out, rank.call);
    });
    rank.wait();
    world.barrier();
    for (int replay = 0; replay < 4; ++replay) {
      round.reset(rank.stream.get());
      of_others.reset(rank.stream.get());
      all.launch(rank.stream.get());
      rank.check_rows(round);
      rank.check_rows(of_others);
      rank.check_tokens(of_others);
      rank.combine(of_others, handle);
    }
    world.barrier();
  });
}

// A dispatch that leaves none since there are too few bytes is told of once, and all else of it is good. A call that is
// given such memory ends the exchange.
TEST_F(GpuShortHandles, WithTooFewBytesAreToldOfOnce) {
  const Scenario scenario = scenario_of(8);
  run([&](World& world) {
    Rank rank(world, scenario);
    const std::int64_t takes = handle_bytes_of(rank.exchange, scenario);
    const Handle small(takes - 16);
    HandleRound round(scenario, world.rank());
    world.barrier();
    rank.exchange.dispatch(round.in, round.leaving(small), rank.call);
    round.fetch(rank.stream.get());
    try {
      rank.exchange.check();
      ADD_FAILURE() << "rank " << world.rank() << " was told nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr("u8 [" + std::to_string(takes - 16) + "]"),
                                      HasSubstr("takes " + std::to_string(takes) + " bytes")));
    }
    rank.exchange.check();
    round.host.check_rows();
    rank.combine_newest(round);
    world.barrier();
    rank.exchange.combine(round.returned(small), round.combine_out, rank.call);
    rank.wait();
    world.barrier();
    try {
      rank.exchange.check();
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  AnyOf(AllOf(HasSubstr("too few bytes"), HasSubstr(std::to_string((takes + 15) / 16 * 16))),
                        HasSubstr("gave combine")));  // another rank was first
    }
    world.barrier();
  });
}

// I17: rank 1 makes a call with one of which a byte has changed, or a whole one in its place. That ends the exchange on
// all ranks, long before a deadline. `says`: what the error of rank 1 says.
void expect_end(Operation operation, std::size_t at, const std::string& says, bool gives_whole = false) {
  const Scenario scenario = scenario_of(8);
  run([&](World& world) {
    Rank rank(world, scenario);
    const std::int64_t takes = handle_bytes_of(rank.exchange, scenario);
    Handle handle(takes), whole(rank.exchange);
    HandleRound round(scenario, world.rank());
    world.barrier();
    rank.keep(round, handle);
    if (gives_whole) {  // of the same routing
      round.reset(rank.stream.get());
      rank.exchange.dispatch(round.replayed(handle), round.leaving(whole), rank.call);
      rank.check_rows(round);
    }
    if (world.rank() == 1 && !gives_whole) handle.spoil(at, rank.stream.get());
    Tensor given = gives_whole && world.rank() == 1 ? whole.tensor() : handle.tensor();
    given.shape[0] = takes;
    if (operation == Operation::dispatch) {
      DispatchInput in = round.replayed(handle);
      in.handle = given;
      rank.exchange.dispatch(in, round.out, rank.call);
    } else {
      CombineInput in = round.returned(handle);
      in.handle = given;
      rank.exchange.combine(in, round.combine_out, rank.call);
    }
    rank.wait();
    world.barrier();
    try {
      rank.exchange.check();
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing, but " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(world.rank() == 1 ? says : "rank 1 gave"));
    }
    world.barrier();
  });
}

TEST_F(GpuShortHandles, ThatAreNoneEndTheExchange) {
  expect_end(Operation::combine, offsetof(HandleHeader, magic), "its first word is");
  expect_end(Operation::dispatch, offsetof(HandleHeader, magic), "its first word is");
  expect_end(Operation::combine, offsetof(HandleHeader, ranks), "ranks is");
  expect_end(Operation::dispatch, offsetof(HandleHeader, max_tokens), "max_tokens is");
}
TEST_F(GpuShortHandles, OfMoreThanTheirBytesEndTheExchange) {
  expect_end(Operation::combine, offsetof(HandleHeader, short_messages) + 1, "too few bytes");
  expect_end(Operation::dispatch, offsetof(HandleHeader, short_rows) + 1, "too few bytes");
  expect_end(Operation::combine, offsetof(HandleHeader, short_rows) + 3, "too few bytes");
}
TEST_F(GpuShortHandles, ThatAreWholeEndTheExchange) {
  expect_end(Operation::combine, 0, "too few bytes", true);
  expect_end(Operation::dispatch, 0, "too few bytes", true);
}

}  // namespace
}  // namespace ferry::test
