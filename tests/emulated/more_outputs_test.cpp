// Outputs that a dispatch may leave out, in memory of a GPU: every order of rows, captured graphs, memory that is not
// the GPU's. The conformance suite has the same in host memory, in more formats and shapes.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>

#include "cuda/exchange/plan/kernel_plan.h"
#include "emulated/device_rank.h"
#include "emulated/emulated_ranks.h"
#include "gpu/captured_graph.h"
#include "support/emulated_gpu/graphs.h"

namespace ferry::test {
namespace {

using conformance::ScaleForm;
using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr int kRanks = 3;
constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

// The orders are those of rank 0, 1 and so on, and then from the first again.
ScenarioSettings settings_of(const char* format, std::vector<RowOrder> orders) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for(format);
  settings.options.row_orders = kAllOrders;
  settings.row_orders = std::move(orders);
  settings.routing = "ragged";
  settings.seed = 71;
  settings.more_outputs = true;
  return settings;
}

// Rounds of these scenarios, one after another on an exchange of the first.
void run_in_turn(const std::vector<const Scenario*>& scenarios) {
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, *scenarios.front());
    for (const Scenario* scenario : scenarios) {
      DeviceRound round(*scenario, world.rank());
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.check_rows(round);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
      round.fetch();
      round.host.check_tokens();
    }
  });
}

class EmulatedOutputs : public EmulatedGpus {};

TEST_F(EmulatedOutputs, AreThoseOfTheOracleInEveryOrderOfRows) {
  using enum RowOrder;
  for (const char* format : {"bf16", "mxfp8"})
    for (const ScaleForm form : {ScaleForm::columns, ScaleForm::groups_of_four}) {
      ScenarioSettings settings = settings_of(format, {in_place, by_source, padded});
      settings.scale_form = form;
      const Scenario first = make_scenario(settings);
      settings.row_orders = {by_expert, in_place, by_source};
      settings.seed = 72;
      const Scenario second = make_scenario(settings);
      run_cuda_ranks(kRanks, false, [&](World& world) {
        DeviceRank rank(world, first);
        for (const Scenario* scenario : {&first, &second, &first}) {
          DeviceRound round(*scenario, world.rank());
          if (scenario == &first) {
            rank.exchange.dispatch_async(round.in, rank.call);
            rank.exchange.dispatch_wait(round.out, rank.call);
          } else {
            rank.exchange.dispatch(round.in, round.out, rank.call);
          }
          rank.check_rows(round);
          rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
          round.fetch();
          round.host.check_tokens();
        }
      });
    }
}

// Rows without room, by each rank in another order.
TEST_F(EmulatedOutputs, SayWhichRowsHadNoRoom) {
  using enum RowOrder;
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    for (const int percent : {0, 40, 100}) {
      ScenarioSettings settings = settings_of("mxfp8", {in_place, padded, by_expert});
      settings.options.reduction = reduction;
      if (reduction == Reduction::exact) settings.options.row_orders = kUsualRowOrders;
      settings.overflow = Overflow::expected;
      settings.room_percent = percent;
      if (percent == 40)
        settings.options.result_format = format_named(reduction == Reduction::exact ? "nvfp4" : "fp8_block128");
      settings.expert_stride = 2;
      settings.spare_rows = 0;
      const Scenario first = make_scenario(settings);
      settings.row_orders = {padded, by_expert, reduction == Reduction::exact ? in_place : by_source};
      const Scenario second = make_scenario(settings);
      run_in_turn({&first, &second, &first});
    }
}

// A graph of a dispatch whose rows overflow, and another one of its combine, which is captured after another dispatch.
TEST_F(EmulatedOutputs, OfGraphsSayWhichRowsHadNoRoom) {
  ScenarioSettings settings = settings_of("bf16", {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded});
  const Scenario usual = make_scenario(settings);
  settings.overflow = Overflow::expected;
  settings.room_percent = 20;
  settings.expert_stride = 1;
  settings.spare_rows = 0;
  const Scenario overflowing = make_scenario(settings);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, usual);
    DeviceRound captured(overflowing, world.rank()), round(usual, world.rank());
    const CapturedGraph graph(rank.stream.get(), [&] { rank.exchange.dispatch(captured.in, captured.out, rank.call); });
    const auto dispatch = [&] {
      round.reset(rank.stream.get());
      captured.reset(rank.stream.get());
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.check_rows(round);
    };
    dispatch();
    const CapturedGraph sums(rank.stream.get(),
                             [&] { rank.exchange.combine(captured.combine_in, captured.combine_out, rank.call); });
    for (int again = 0; again < 2; ++again) {
      dispatch();
      graph.launch(rank.stream.get());
      sums.launch(rank.stream.get());
      rank.check_rows(captured);
      captured.host.check_tokens();
    }
    world.barrier();
  });
}

// Handles of such dispatches, whose combines come later, also in a graph.
TEST_F(EmulatedOutputs, OfHandlesSayWhichRowsHadNoRoom) {
  ScenarioSettings settings = settings_of("bf16", {RowOrder::in_place, RowOrder::by_expert, RowOrder::by_source});
  const Scenario usual = make_scenario(settings);
  settings.overflow = Overflow::expected;
  settings.room_percent = 40;
  settings.spare_rows = 0;
  const Scenario overflowing = make_scenario(settings);
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, usual);
    DeviceRound kept(overflowing, world.rank()), round(usual, world.rank());
    const cuda::DeviceMemory handle(static_cast<std::size_t>(rank.exchange.layout().handle_bytes));
    kept.out.handle = Tensor(handle.data(), DType::u8, {rank.exchange.layout().handle_bytes});
    rank.exchange.dispatch(kept.in, kept.out, rank.call);
    rank.check_rows(kept);
    kept.combine_in.handle = kept.out.handle;
    const CapturedGraph graph(rank.stream.get(),
                              [&] { rank.exchange.combine(kept.combine_in, kept.combine_out, rank.call); });
    for (const bool in_graph : {false, true, true}) {
      kept.reset(rank.stream.get());
      rank.exchange.dispatch(round.in, round.out, rank.call);
      if (in_graph)
        graph.launch(rank.stream.get());
      else
        rank.exchange.combine(kept.combine_in, kept.combine_out, rank.call);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
      kept.fetch();
      rank.exchange.check();
      kept.host.check_tokens();
    }
    world.barrier();
  });
}

// More tokens of a source than a chunk of messages has.
TEST_F(EmulatedOutputs, NumberMessagesOfManyChunks) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source}) {
    ScenarioSettings settings = settings_of("bf16", {order});
    settings.shape = {.ranks = 2, .experts = 5, .top_k = 2, .max_tokens = 1100, .hidden = 32};
    const Scenario scenario = make_scenario(settings);
    run_cuda_ranks(2, false, [&](World& world) {
      DeviceRank rank(world, scenario);
      DeviceRound round(scenario, world.rank());
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.check_rows(round);
    });
  }
}

// Usual ones that are left out, in memory of the GPU.
TEST_F(EmulatedOutputs, AreWrittenWhereUsualOnesAreLeftOut) {
  using enum RowOrder;
  for (const char* format : {"fp8_block128", "nvfp4"})
    for (const bool more_outputs : {false, true})
      for (const conformance::LeftOut left_out :
           {conformance::LeftOut{true, false, false}, {false, true, false}, {false, false, true}, {true, true, true}}) {
        ScenarioSettings settings = settings_of(format, {in_place, by_source, padded});
        settings.options.expert_alignment = 4;
        settings.more_outputs = more_outputs;
        settings.left_out = left_out;
        const Scenario first = make_scenario(settings);
        settings.row_orders = {by_expert, in_place, by_expert};
        settings.seed = 72;
        const Scenario second = make_scenario(settings);
        run_in_turn({&first, &second});
      }
}

// The scales kernel of a large round reads src_info: without it the kernel that lays out the rows stores their scales.
TEST_F(EmulatedOutputs, WithoutSrcInfoNeedNoScalesKernel) {
  emulated::set_gpus({.multiprocessors = 8});
  for (const char* format : {"fp8_block128", "nvfp4"})
    for (const bool has_src_info : {true, false}) {
      ScenarioSettings settings = settings_of(format, {RowOrder::by_expert});
      settings.shape = {.ranks = 2, .experts = 5, .top_k = 2, .max_tokens = 600, .hidden = 1024};
      settings.routing = "uniform";
      settings.more_outputs = false;
      settings.max_blocks = cuda::kLeastBlocks;
      settings.left_out.src_info = !has_src_info;
      const Scenario scenario = make_scenario(settings);
      std::atomic<int> launched = 0;
      change_params<cuda::ScalesParams>([&](cuda::ScalesParams&) { ++launched; });
      change_params<cuda::FinishParams>([&](cuda::FinishParams& left) { launched += left.has_scales ? 1 : 0; });
      run_cuda_ranks(2, false, [&](World& world) {
        DeviceRank rank(world, scenario);
        rank.call.max_blocks = settings.max_blocks;
        DeviceRound round(scenario, world.rank());
        rank.exchange.dispatch(round.in, round.out, rank.call);
        rank.check_rows(round);
      });
      change_params<cuda::ScalesParams>({});
      change_params<cuda::FinishParams>({});
      EXPECT_EQ(launched > 0, has_src_info) << format;
    }
}

// One kernel lists tokens, stores scales, leaves a handle and writes these outputs, where all of it is asked for.
TEST_F(EmulatedOutputs, ComeFromTheKernelOfAllThatIsLeft) {
  emulated::set_gpus({.multiprocessors = 8});
  for (const char* format : {"fp8_block128", "nvfp4"}) {
    ScenarioSettings settings = settings_of(format, {RowOrder::by_expert, RowOrder::by_source});
    settings.shape = {.ranks = 2, .experts = 5, .top_k = 2, .max_tokens = 600, .hidden = 1024};
    settings.routing = "uniform";
    settings.zero_padding = true;
    settings.max_blocks = cuda::kLeastBlocks;
    const Scenario scenario = make_scenario(settings);
    std::atomic<int> of_four = 0;
    change_params<cuda::FinishParams>([&](cuda::FinishParams& left) { of_four += left.parts() == 4 ? 1 : 0; });
    run_cuda_ranks(2, false, [&](World& world) {
      DeviceRank rank(world, scenario);
      rank.call.max_blocks = settings.max_blocks;
      DeviceRound round(scenario, world.rank());
      const cuda::DeviceMemory handle(static_cast<std::size_t>(rank.exchange.layout().handle_bytes));
      round.out.handle = Tensor(handle.data(), DType::u8, {rank.exchange.layout().handle_bytes});
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.check_rows(round);
      round.combine_in.handle = round.out.handle;
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
      round.fetch();
      round.host.check_tokens();
      world.barrier();
    });
    change_params<cuda::FinishParams>({});
    EXPECT_GT(of_four, 0) << format;
  }
}

TEST_F(EmulatedOutputs, AreInCapturedGraphs) {
  const Scenario scenario =
      make_scenario(settings_of("fp8_block128", {RowOrder::in_place, RowOrder::by_expert, RowOrder::by_source}));
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    const CapturedGraph graph(rank.stream.get(), [&] {
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
    });
    for (int replay = 0; replay < 3; ++replay) {
      world.barrier();
      round.reset(rank.stream.get());
      graph.launch(rank.stream.get());
      rank.check_rows(round);
      round.host.check_tokens();
    }
    world.barrier();
  });
}

TEST_F(EmulatedOutputs, InHostMemoryAreRefused) {
  const Scenario scenario = make_scenario([] {
    ScenarioSettings settings = settings_of("mxfp8", {RowOrder::by_expert});
    settings.scale_form = ScaleForm::rows;
    return settings;
  }());
  using Out = DispatchOutput;
  const std::pair<const char*, Tensor Out::*> fields[] = {
      {"source_starts", &Out::source_starts},   {"row_weights", &Out::row_weights},
      {"row_sources", &Out::row_sources},       {"messages", &Out::messages},
      {"row_scales", &Out::row_scales},         {"overflow", &Out::overflow},
      {"waited_ns", &Out::waited_ns},           {"counts", &Out::counts},
      {"source_offsets", &Out::source_offsets}, {"cumulative_counts", &Out::cumulative_counts}};
  run_cuda_ranks(kRanks, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, world.rank());
    std::vector<std::int64_t> host(4096);
    for (const auto& [name, field] : fields) {
      DispatchOutput out = round.out;
      (out.*field).data = host.data();
      conformance::expect_error(world.rank(), name, ErrorKind::invalid_argument, {name, "host memory"},
                                [&] { rank.exchange.dispatch(round.in, out, rank.call); });
    }
    round.fetch();
    round.host.check_untouched();
    rank.exchange.dispatch(round.in, round.out, rank.call);
    rank.check_rows(round);
  });
}

// What is asked for costs kernels, and what is not costs none (graph_nodes_test.cpp).
TEST_F(EmulatedOutputs, AreKernelsOfTheirOwn) {
  ScenarioSettings settings = settings_of("mxfp8", {RowOrder::by_expert});
  settings.shape.ranks = 1;
  settings.options.row_orders = kUsualRowOrders;
  const Scenario scenario = make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    DeviceRank rank(world, scenario);
    DeviceRound round(scenario, 0);
    const auto nodes = [&](std::initializer_list<Tensor DispatchOutput::*> asked) {
      DispatchOutput out = round.out;
      for (const conformance::MoreOutputs::Memory& each : round.host.more()->memory()) out.*each.field = {};
      for (Tensor DispatchOutput::*field : asked) out.*field = round.out.*field;
      cudaGraph_t graph = nullptr;
      cuda::cuda_check(cudaStreamBeginCapture(rank.stream.get(), cudaStreamCaptureModeThreadLocal), "begin");
      rank.exchange.dispatch(round.in, out, rank.call);
      cuda::cuda_check(cudaStreamEndCapture(rank.stream.get(), &graph), "cudaStreamEndCapture");
      const std::size_t count = graph->operations.size();
      cudaGraphDestroy(graph);
      return count;
    };
    EXPECT_EQ(nodes({}), 1u);
    EXPECT_EQ(nodes({&DispatchOutput::counts, &DispatchOutput::row_weights}), 2u);
    EXPECT_EQ(nodes({&DispatchOutput::messages, &DispatchOutput::source_offsets}), 3u);
    EXPECT_EQ(nodes({&DispatchOutput::waited_ns}), 3u);  // one copies what was waited before
  });
}

}  // namespace
}  // namespace ferry::test
