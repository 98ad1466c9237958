// Router weights on emulated GPUs, in sessions against the oracle and in memory of a GPU: weights that are not f32,
// that come late, and that come home. The conformance suite has more, in host memory.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "emulated/device_rank.h"
#include "emulated/emulated_ranks.h"
#include "gpu/captured_graph.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr int kRanks = 3;
constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

void run(std::uint64_t seed, const Session& session, const emulated::Gpus& gpus = {},
         EmulatedReach reach = EmulatedReach::direct) {
  try {
    run_emulated(session, {.seed = seed}, gpus, reach);
  } catch (const std::exception& error) {
    FAIL() << "seed " << seed << ": " << error.what() << "\n" << session.description();
  }
}

// A rank alone puts nothing.
SessionSettings several_ranks(SessionSettings settings) {
  settings.shape.ranks = std::max(settings.shape.ranks, 2);
  settings.shape.experts = std::max(settings.shape.experts, settings.shape.ranks);
  return settings;
}

// ---- weights that are not f32

class EmulatedWeights : public EmulatedGpus {};

// At dispatch, where rows say them; and at combine.
TEST_F(EmulatedWeights, OfEveryTypeAreTaken) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
      ScenarioSettings settings;
      settings.shape = {kRanks, 7, 3, 9, 96};
      settings.options = conformance::options_for("bf16", reduction);
      settings.routing = "ragged";
      settings.weight_dtype = dtype;
      settings.more_outputs = true;
      const Scenario scenario = make_scenario(settings);
      run_cuda_ranks(kRanks, false, [&](World& world) {
        DeviceRank rank(world, scenario);
        DeviceRound round(scenario, world.rank());
        for (int turn = 0; turn < 3; ++turn) {
          round.reset(rank.stream.get());
          rank.exchange.dispatch(round.in, round.out, rank.call);
          if (turn == 1) {
            rank.exchange.combine_async(round.combine_in, rank.call);
            rank.exchange.combine_wait(round.combine_out, rank.call);
          } else {
            rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
          }
          rank.check_rows(round);
          round.host.check_tokens();
        }
      });
    }
}

// ---- weights that come late

SessionSettings draw_late(std::uint64_t seed) {
  Random random(seed * 3);
  SessionSettings settings = draw_settings(random, "bf16", Reduction::by_rank, 1);
  settings.options.late_weights = true;
  settings.options.returns_weights = seed % 4 == 0;
  settings.num_rounds = 6;
  if (seed % 2 == 0) {
    settings.options.fused_shared_expert = false;
    settings.row_orders = {RowOrder::padded, RowOrder::in_place, RowOrder::by_expert};
  }
  if (seed % 4 == 2) {
    settings.options.row_orders = kAllOrders;
    settings.row_orders.push_back(RowOrder::by_source);
    settings.more_outputs = true;
  }
  return settings;
}

TEST(EmulatedLate, AgreeInEveryOrderOfRows) {
  for (std::uint64_t seed = 1; seed <= 8 && !testing::Test::HasFailure(); ++seed)
    run(seed, make_session(draw_late(seed), seed), {.multiprocessors = seed % 3 == 0 ? 5 : 2});
}

TEST(EmulatedLate, AgreeByLatePuts) {
  for (std::uint64_t seed = 11; seed <= 16 && !testing::Test::HasFailure(); ++seed)
    run(seed, make_session(several_ranks(draw_late(seed)), seed), {}, EmulatedReach::late_puts);
}

// ---- weights that come home

class EmulatedReturned : public testing::TestWithParam<Reduction> {};

SessionSettings draw_returned(std::uint64_t seed, Reduction reduction) {
  Random random(seed * 5 + static_cast<std::uint64_t>(reduction));
  SessionSettings settings = draw_settings(random, "mxfp8", reduction, 1);
  settings.options.returns_weights = true;
  settings.num_rounds = 4;
  if (seed % 2 == 0) {
    settings.options.fused_shared_expert = false;
    settings.row_orders = {RowOrder::padded, RowOrder::in_place, RowOrder::by_expert};
    if (reduction == Reduction::by_rank) settings.row_orders.push_back(RowOrder::by_source);
    if (reduction == Reduction::by_rank) settings.options.row_orders = kAllOrders;
  }
  return settings;
}

TEST_P(EmulatedReturned, AgreeInEveryOrderOfRows) {
  for (std::uint64_t seed = 1; seed <= 6 && !HasFailure(); ++seed)
    run(seed, make_session(draw_returned(seed, GetParam()), seed), {.multiprocessors = seed % 3 == 0 ? 5 : 2});
}

TEST_P(EmulatedReturned, AgreeByLatePuts) {
  for (std::uint64_t seed = 11; seed <= 16 && !HasFailure(); ++seed)
    run(seed, make_session(several_ranks(draw_returned(seed, GetParam())), seed), {}, EmulatedReach::late_puts);
}

INSTANTIATE_TEST_SUITE_P(Reductions, EmulatedReturned, testing::Values(Reduction::by_rank, Reduction::exact),
                         [](const auto& each) { return std::string(to_string(each.param)); });

// The orders are those of rank 0, 1 and so on.
ScenarioSettings settings_of(std::vector<RowOrder> orders) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for("bf16");
  settings.options.row_orders = kAllOrders;
  settings.options.returns_weights = true;
  settings.row_orders = std::move(orders);
  settings.routing = "ragged";
  settings.seed = 81;
  return settings;
}

// One rank's handle on its GPU.
class DeviceHandle {
 public:
  explicit DeviceHandle(const Exchange& exchange)
      : bytes_(exchange.layout().handle_bytes), memory_(static_cast<std::size_t>(bytes_)) {}
  Tensor tensor() const { return {memory_.data(), DType::u8, {bytes_}}; }

 private:
  std::int64_t bytes_;
  cuda::DeviceMemory memory_;
};

void combine(DeviceRank& rank, DeviceRound& round, const DeviceHandle* handle, bool split = false) {
  round.reset(rank.stream.get());
  CombineInput in = round.combine_in;
  if (handle != nullptr) in.handle = handle->tensor();
  if (split) {
    rank.exchange.combine_async(in, rank.call);
    rank.exchange.combine_wait(round.combine_out, rank.call);
  } else {
    rank.exchange.combine(in, round.combine_out, rank.call);
  }
  round.fetch();
  rank.exchange.check();
  round.host.check_tokens();
}

class EmulatedReturnedWeights : public EmulatedGpus {};

// Combines of an earlier dispatch, again and again, whose weights differ from those of the newest one.
TEST_F(EmulatedReturnedWeights, ComeWithHandlesAndInGraphs) {
  using enum RowOrder;
  ScenarioSettings settings = settings_of({by_source, by_expert, padded});
  const Scenario first = make_scenario(settings);
  settings.seed = 82;
  settings.row_orders = {in_place, by_source, by_expert};
  const Scenario second = make_scenario(settings);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, first);
    const DeviceHandle handle(rank.exchange);
    DeviceRound kept(first, world.rank()), round(second, world.rank());
    const CapturedGraph graph(rank.stream.get(), [&] {
      CombineInput in = kept.combine_in;
      in.handle = handle.tensor();
      rank.exchange.combine(in, kept.combine_out, rank.call);
    });
    kept.out.handle = handle.tensor();
    rank.exchange.dispatch(kept.in, kept.out, rank.call);
    combine(rank, kept, &handle);
    rank.exchange.dispatch(round.in, round.out, rank.call);
    combine(rank, kept, &handle, true);
    combine(rank, round, nullptr, true);
    combine(rank, kept, &handle);
    for (int replay = 0; replay < 2; ++replay) {
      kept.reset(rank.stream.get());
      graph.launch(rank.stream.get());
      kept.fetch();
      rank.exchange.check();
      kept.host.check_tokens();
    }
    world.barrier();
  });
}

// A kernel compares the order of a handle's rows with the weights: the exchange ends on all ranks.
TEST_F(EmulatedReturnedWeights, OfAnotherOrderThanTheHandlesAreRefused) {
  for (const bool by_source : {false, true}) {
    const RowOrder order = by_source ? RowOrder::by_source : RowOrder::padded;
    const Scenario scenario = make_scenario(settings_of({order}));
    run_cuda_ranks(kRanks, false, [&](World& world) {
      DeviceRank rank(world, scenario);
      const DeviceHandle handle(rank.exchange);
      DeviceRound round(scenario, world.rank());
      round.out.handle = handle.tensor();
      rank.exchange.dispatch(round.in, round.out, rank.call);
      CombineInput in = round.combine_in;
      in.handle = handle.tensor();
      const void* values = in.row_topk_weights.data;
      if (world.rank() == 1)
        in.row_topk_weights =
            by_source ? ConstTensor(values, DType::f32, {4}) : ConstTensor(values, DType::f32, {1, 3});
      rank.exchange.combine(in, round.combine_out, rank.call);
      cuda::cuda_check(cudaStreamSynchronize(rank.stream.get()), "cudaStreamSynchronize");
      try {
        rank.exchange.check();
        ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
      } catch (const Error& error) {
        const char* says = world.rank() == 1 ? "order of rows" : "rank 1";
        EXPECT_THAT(error.what(), testing::HasSubstr(says));
      }
    });
  }
}

// An exchange without rows by_source has none with K values each, whatever a handle in memory of the GPU is of.
TEST_F(EmulatedReturnedWeights, OfRowsThatTheExchangeLacksAreRefused) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    ScenarioSettings settings = settings_of({RowOrder::padded});
    settings.options.reduction = reduction;
    settings.options.row_orders = {RowOrder::padded};
    const Scenario scenario = make_scenario(settings);
    run_cuda_ranks(kRanks, false, [&](World& world) {
      DeviceRank rank(world, scenario);
      const DeviceHandle handle(rank.exchange);
      DeviceRound round(scenario, world.rank());
      round.out.handle = handle.tensor();
      rank.exchange.dispatch(round.in, round.out, rank.call);
      CombineInput in = round.combine_in;
      in.handle = handle.tensor();
      in.row_topk_weights = ConstTensor(in.row_topk_weights.data, DType::f32, {1, 3});
      conformance::expect_error(world.rank(), "values of K", ErrorKind::invalid_argument,
                                {"row_topk_weights", "[1, 3]", "by_source"},
                                [&] { rank.exchange.combine(in, round.combine_out, rank.call); });
      combine(rank, round, &handle);
    });
  }
}

// Only the device knows how many rows there are. The values that were given go home all the same.
TEST_F(EmulatedReturnedWeights, OfTooFewRowsAreTold) {
  const Scenario scenario = make_scenario(settings_of({RowOrder::by_source, RowOrder::by_expert, RowOrder::padded}));
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    rank.exchange.dispatch(round.in, round.out, rank.call);
    CombineInput in = round.combine_in;
    in.row_topk_weights.shape[0] = 2;
    rank.exchange.combine(in, round.combine_out, rank.call);
    round.fetch();
    conformance::expect_error(world.rank(), "too few values", ErrorKind::invalid_argument,
                              {"row_topk_weights of an earlier combine had 2 rows"}, [&] { rank.exchange.check(); });
    rank.exchange.dispatch(round.in, round.out, rank.call);
    combine(rank, round, nullptr);
  });
}

TEST_F(EmulatedReturnedWeights, InHostMemoryAreRefused) {
  const Scenario scenario = make_scenario(settings_of({RowOrder::by_expert}));
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    rank.exchange.dispatch(round.in, round.out, rank.call);
    std::vector<float> host(4096);
    CombineInput in = round.combine_in;
    in.row_topk_weights.data = host.data();
    CombineOutput out = round.combine_out;
    out.topk_weights.data = host.data();
    const auto refuse = [&](const char* name, const CombineInput& given, const CombineOutput& taken) {
      conformance::expect_error(world.rank(), name, ErrorKind::invalid_argument, {name, "host memory"},
                                [&] { rank.exchange.combine(given, taken, rank.call); });
    };
    refuse("row_topk_weights", in, round.combine_out);
    if (round.combine_out.tokens.shape[0] != 0) refuse("topk_weights", round.combine_in, out);
    combine(rank, round, nullptr);
  });
}

// ---- late weights in memory of a GPU

ScenarioSettings late_settings(conformance::WeightsAt at, DType dtype) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for("bf16");
  settings.options.late_weights = true;
  settings.routing = "ragged";
  settings.seed = 91;
  settings.weights_at = at;
  settings.weight_dtype = dtype;
  return settings;
}

// A handle whose dispatch was given no weights takes some in each combine, in a captured graph, too.
TEST_F(EmulatedWeights, MayComeWithACombineThatHasAHandle) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Scenario first = make_scenario(late_settings(conformance::WeightsAt::combine, dtype));
    const Scenario second = with_other_weights(first, 92);
    run_cuda_ranks(kRanks, false, [&](World& world) {
      DeviceRank rank(world, first);
      const DeviceHandle handle(rank.exchange);
      DeviceRound round(first, world.rank()), other(second, world.rank());
      const CapturedGraph graph(rank.stream.get(), [&] {
        CombineInput in = other.combine_in;
        in.handle = handle.tensor();
        rank.exchange.combine(in, other.combine_out, rank.call);
      });
      round.out.handle = handle.tensor();
      rank.exchange.dispatch(round.in, round.out, rank.call);
      combine(rank, round, &handle);
      combine(rank, other, &handle, true);
      combine(rank, round, nullptr, true);
      for (int replay = 0; replay < 2; ++replay) {
        other.reset(rank.stream.get());
        graph.launch(rank.stream.get());
        other.fetch();
        rank.exchange.check();
        other.host.check_tokens();
      }
      combine(rank, round, &handle);
      world.barrier();
    });
  }
}

// Where some ranks give none with a replay, those of the handle count. The handle that was given stays as it was.
TEST_F(EmulatedWeights, MayComeWithAReplay) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    const Scenario first = make_scenario(late_settings(conformance::WeightsAt::dispatch, dtype));
    const Scenario second = with_other_weights(first, 93);
    run_cuda_ranks(kRanks, false, [&](World& world) {
      DeviceRank rank(world, first);
      const DeviceHandle a(rank.exchange), b(rank.exchange);
      DeviceRound round(first, world.rank()), other(second, world.rank());
      round.out.handle = a.tensor();
      rank.exchange.dispatch(round.in, round.out, rank.call);
      for (const DeviceHandle* left : {&b, &a}) {
        DispatchInput in = other.in;
        in.topk_ids = {};
        if (world.rank() % 2 == 0) in.topk_weights = {};
        in.handle = a.tensor();
        other.out.handle = left->tensor();
        other.reset(rank.stream.get());
        rank.exchange.dispatch(in, other.out, rank.call);
        rank.check_rows(other);
        combine(rank, other, left);
        if (left == &b) combine(rank, round, &a);
        combine(rank, other, &b);
      }
    });
  }
}

TEST_F(EmulatedWeights, OfMoreTokensThanThereCanBeAreRefused) {
  const Scenario scenario = make_scenario(late_settings(conformance::WeightsAt::combine, DType::f32));
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    const DeviceHandle handle(rank.exchange);
    DeviceRound round(scenario, world.rank());
    round.out.handle = handle.tensor();
    rank.exchange.dispatch(round.in, round.out, rank.call);
    CombineInput in = round.combine_in;
    in.handle = handle.tensor();
    in.topk_weights.shape[0] = 10;
    conformance::expect_error(world.rank(), "too many weights", ErrorKind::invalid_argument,
                              {"topk_weights has 10 rows", "max_tokens, 9"},
                              [&] { rank.exchange.combine_async(in, rank.call); });
    combine(rank, round, &handle);
  });
}

}  // namespace
}  // namespace ferry::test
