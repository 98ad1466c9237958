// Dispatches by counts in memory of a GPU: whole, in halves, asked, in captured graphs, with handles, and values that
// only a kernel can see. The emulated suite runs these tests, too. The conformance suite has the same in host memory,
// in more shapes. All memory is made before the first call, as in handles_test.cpp.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "conformance/rounds/scenario.h"
#include "gpu/captured_graph.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

const int kRanks = allowed_ranks(4);
const Shape kShape{.ranks = kRanks, .experts = 10, .top_k = 3, .max_tokens = 20, .hidden = 96};

Scenario scenario_of(std::uint64_t seed, bool by_counts = true, bool late_weights = false) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("mxfp8");
  settings.options.row_orders = {RowOrder::by_source};
  settings.options.late_weights = late_weights;
  settings.row_orders = {RowOrder::by_source};
  settings.routing = "ragged";
  settings.seed = seed;
  settings.by_counts = by_counts;
  if (by_counts) settings.weights = conformance::WeightForm::none;
  return conformance::make_scenario(settings);
}

class GpuCounts : public GpuTest {};

void run(const std::function<void(World&)>& body) { run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks)); }

// Each rank finds the outputs that it may have with a handle of a dispatch by counts.
DispatchOutput without_counts(const DispatchOutput& out) {
  DispatchOutput some = out;
  some.counts = {};
  return some;
}

// Two rounds by counts, with a round by ids between them that leaves other tables behind.
TEST_F(GpuCounts, GiveTheRowsAndCountsOfTheOracle) {
  const Scenario first = scenario_of(3), second = scenario_of(4), named = scenario_of(5, false);
  run([&](World& world) {
    HandleRank rank(world, first);
    HandleRound of_first(first, world.rank()), of_second(second, world.rank()), by_ids(named, world.rank());
    world.barrier();
    for (int turn = 0; turn < 6; ++turn) {
      HandleRound& round = turn % 3 == 0 ? of_first : turn % 3 == 1 ? of_second : by_ids;
      round.reset(rank.stream.get());
      if (turn % 2 == 0) {
        rank.exchange.dispatch(round.in, round.out, rank.call);
      } else {
        rank.exchange.dispatch_async(round.in, rank.call);
        if (turn != 3) {
          const RowCounts counts = rank.exchange.wait_for_counts(rank.call);
          const auto& expected = (turn % 3 == 0   ? first
                                  : turn % 3 == 1 ? second
                                                  : named)
                                     .rows[static_cast<std::size_t>(world.rank())];
          EXPECT_EQ(counts.by_expert, std::vector<std::int64_t>(expected.counts.begin(), expected.counts.end()));
        }
        rank.exchange.dispatch_wait(round.out, rank.call);
      }
      rank.check_rows(round);
      rank.combine_newest(round);
    }
    world.barrier();
  });
}

// I1: a rank that goes on gives its next counts while another one still takes the newest.
TEST_F(GpuCounts, OfTheNextDispatchLeaveTheNewestAlone) {
  const Scenario first = scenario_of(15), second = scenario_of(16);
  run([&](World& world) {
    HandleRank rank(world, first);
    HandleRound of_first(first, world.rank()), of_second(second, world.rank());
    const auto take = [&](HandleRound& round) {
      rank.exchange.dispatch_wait(round.out, rank.call);
      rank.check_rows(round);
    };
    world.barrier();
    for (int slow = 0; slow < kRanks; ++slow) {
      for (HandleRound* each : {&of_first, &of_second}) each->reset(rank.stream.get());
      rank.exchange.dispatch_async(of_first.in, rank.call);
      if (world.rank() != slow) {
        take(of_first);
        rank.exchange.dispatch_async(of_second.in, rank.call);
      }
      rank.wait();
      world.barrier();
      if (world.rank() == slow) {
        take(of_first);
        rank.exchange.dispatch_async(of_second.in, rank.call);
      }
      take(of_second);
    }
    world.barrier();
  });
}

TEST_F(GpuCounts, GoIntoCapturedGraphs) {
  const Scenario counted = scenario_of(6), named = scenario_of(7, false);
  run([&](World& world) {
    HandleRank rank(world, counted);
    const Handle handle(rank.exchange);
    HandleRound round(counted, world.rank()), by_ids(named, world.rank());
    const CapturedGraph whole(rank.stream.get(), [&] {
      rank.exchange.dispatch(round.in, round.leaving(handle), rank.call);
      rank.exchange.combine(round.returned(handle), round.combine_out, rank.call);
    });
    rank.wait();
    world.barrier();
    for (int replay = 0; replay < 5; ++replay) {
      for (HandleRound* each : {&round, &by_ids}) each->reset(rank.stream.get());
      whole.launch(rank.stream.get());
      rank.check_rows(round);
      rank.check_tokens(round);
      if (replay % 2 == 0) continue;
      rank.exchange.dispatch(by_ids.in, by_ids.out, rank.call);
      rank.check_rows(by_ids);
    }
    world.barrier();
  });
}

// Handles of dispatches by counts, replayed with other tokens, and left again by the replay. With late weights a kernel
// writes that handle.
void leave_handles(bool late_weights) {
  const Scenario counted = scenario_of(8, true, late_weights), named = scenario_of(9, false, late_weights);
  const Scenario other_tokens = with_other_tokens(counted, counted.settings, 10);
  run([&](World& world) {
    HandleRank rank(world, counted);
    const Handle first(rank.exchange), copy(rank.exchange), of_ids(rank.exchange);
    HandleRound round(counted, world.rank()), others(other_tokens, world.rank()), by_ids(named, world.rank());
    const CapturedGraph replays(rank.stream.get(),
                                [&] { rank.exchange.dispatch(by_ids.replayed(of_ids), by_ids.out, rank.call); });
    world.barrier();
    rank.keep(by_ids, of_ids);
    rank.keep(round, first);
    rank.combine(round, first);
    for (const Handle* handle : {&first, &copy}) {
      others.reset(rank.stream.get());
      DispatchOutput out = without_counts(others.out);
      if (handle == &first) out.handle = copy.tensor();
      rank.exchange.dispatch_async(others.replayed(*handle), rank.call);
      const RowCounts counts = rank.exchange.wait_for_counts(rank.call);
      EXPECT_TRUE(counts.by_expert.empty());
      EXPECT_EQ(counts.rows,
                static_cast<std::int64_t>(counted.rows[static_cast<std::size_t>(world.rank())].rows.size()));
      rank.exchange.dispatch_wait(out, rank.call);
      rank.combine(others, *handle, handle == &copy);
      rank.replay(by_ids, of_ids);  // its outputs tell of ids: nothing is wrong with that
    }
    by_ids.reset(rank.stream.get());
    replays.launch(rank.stream.get());
    rank.check_rows(by_ids);
    world.barrier();
  });
}
TEST_F(GpuCounts, LeaveHandles) {
  for (const bool late_weights : {false, true}) leave_handles(late_weights);
}

// Calls `spoils`, which enqueues, and expects that the next call throws an error with these fragments, once.
void expect_told(HandleRank& rank, const std::vector<std::string>& fragments, const std::function<void()>& spoils) {
  spoils();
  rank.wait();
  conformance::expect_error(rank.world.rank(), "what a kernel found", ErrorKind::invalid_argument, fragments,
                            [&] { rank.exchange.check(); });
  rank.exchange.check();
}

TEST_F(GpuCounts, OfAHandleAreNotTold) {
  const Scenario counted = scenario_of(11);
  run([&](World& world) {
    HandleRank rank(world, counted);
    const Handle handle(rank.exchange);
    HandleRound round(counted, world.rank());
    const DispatchInput again = round.replayed(handle);
    world.barrier();
    rank.keep(round, handle);
    for (const bool split : {false, true})
      expect_told(rank, {"counts", "handle", "in_rank"}, [&] {
        if (!split) return rank.exchange.dispatch(again, round.out, rank.call);
        rank.exchange.dispatch_async(again, rank.call);
        rank.exchange.dispatch_wait(round.out, rank.call);
      });
    rank.keep(round, handle);
    rank.combine(round, handle);
    world.barrier();
  });
}

// Kernels that know of such handles are there only behind a dispatch that left one. Every rank gives one, and a rank
// may hear of another's before it has read its own.
TEST_F(GpuCounts, OfAHandleComeFromADispatchBeforeTheCapture) {
  const Scenario counted = scenario_of(12);
  std::atomic<int> own = 0;
  run([&](World& world) {
    HandleRank rank(world, counted);
    const Handle handle(rank.exchange);
    HandleRound round(counted, world.rank());
    const CapturedGraph graph(rank.stream.get(), [&] {
      rank.exchange.dispatch(round.replayed(handle), without_counts(round.out), rank.call);
    });
    rank.wait();
    world.barrier();
    rank.keep(round, handle);
    world.barrier();
    graph.launch(rank.stream.get());
    rank.wait();
    world.barrier();
    try {
      rank.exchange.check();
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr("handle"), HasSubstr("is over on all ranks")));
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("in_rank"), HasSubstr("gave dispatch bytes that are no handle")));
      if (std::string_view(error.what()).find("in_rank") != std::string_view::npos) ++own;
    }
    world.barrier();
  });
  EXPECT_GE(own, 1) << "ranks that say what is wrong";
}

template <class T>
void poke(const ConstTensor& tensor, std::int64_t index, T value, cudaStream_t stream) {
  auto* const at = const_cast<T*>(tensor.as<T>() + index);
  cuda_check(cudaMemcpyAsync(at, &value, sizeof value, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

// Each is told once, the value with it, and the exchange goes on.
TEST_F(GpuCounts, ThatAreOutOfRangeAreTold) {
  const Scenario counted = scenario_of(13);
  run([&](World& world) {
    HandleRank rank(world, counted);
    HandleRound good(counted, world.rank()), flagged(counted, world.rank()), wide(counted, world.rank()),
        negative(counted, world.rank());
    cudaStream_t stream = rank.stream.get();
    const std::int64_t last = counted.round.ranks[static_cast<std::size_t>(world.rank())].num_tokens - 1;
    const int peer_of_flag = kRanks / 2;
    if (last >= 0) poke<std::uint8_t>(flagged.in.in_rank, last * kRanks + peer_of_flag, 7, stream);
    if (last >= 0)
      for (int peer = 0; peer < kRanks; ++peer) poke<std::uint8_t>(wide.in.in_rank, last * kRanks + peer, 1, stream);
    poke<std::int32_t>(negative.in.expert_counts, 9, -5, stream);
    world.barrier();
    const std::string row = "in_rank[" + std::to_string(last);
    const auto told = [&](HandleRound& round, bool is_bad, const std::vector<std::string>& fragments) {
      const auto dispatch = [&] { rank.exchange.dispatch(round.in, round.out, rank.call); };
      is_bad ? expect_told(rank, fragments, dispatch) : dispatch();
    };
    told(flagged, last >= 0, {row + ", " + std::to_string(peer_of_flag) + "]", "is 7"});
    if (kRanks > kShape.top_k) told(wide, last >= 0, {row + "]", "more than 3 ranks"});
    told(negative, true, {"expert_counts[9]", "is -5"});
    good.reset(stream);
    rank.exchange.dispatch(good.in, good.out, rank.call);
    rank.check_rows(good);
    rank.combine_newest(good);
    world.barrier();
  });
}

// What the host can see is refused before anything moves.
TEST_F(GpuCounts, InHostMemoryAreRefused) {
  const Scenario counted = scenario_of(14);
  run([&](World& world) {
    HandleRank rank(world, counted);
    HandleRound round(counted, world.rank());
    world.barrier();
    const auto refused = [&](const char* name, DispatchInput in, const std::vector<std::string>& fragments) {
      conformance::expect_error(world.rank(), name, ErrorKind::invalid_argument, fragments,
                                [&] { rank.exchange.dispatch(in, round.out, rank.call); });
    };
    DispatchInput in = round.in;
    in.in_rank.data = round.host.in_rank.data();
    if (in.in_rank.elements() != 0) refused("flags", in, {"in_rank", "host memory"});
    in = round.in;
    in.expert_counts.data = round.host.in.expert_counts.data;
    refused("counts", in, {"expert_counts", "host memory"});
    in = round.in;
    in.expert_counts.dtype = DType::f32;
    refused("f32 counts", in, {"expert_counts", "f32", "i32"});
    in = round.in;
    in.expert_counts.shape[0] = 9;
    refused("fewer counts", in, {"expert_counts", "[9]", "10"});
    round.fetch(rank.stream.get());
    round.host.check_untouched();
    rank.exchange.dispatch(round.in, round.out, rank.call);
    rank.check_rows(round);
    world.barrier();
  });
}

}  // namespace
}  // namespace ferry::test
