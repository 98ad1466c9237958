// How many kernels a dispatch is in a captured graph, and its combine in the same one (docs/row-orders.md,
// docs/weights.md).
#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "conformance/rounds/rank_round.h"
#include "cuda/exchange/plan/kernel_plan.h"
#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"
#include "gpu/handle_round.h"
#include "gpu/stream.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/graphs.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {
namespace {

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

// Nodes of what `enqueue` puts on the stream.
template <class Enqueue>
std::size_t nodes_of(cudaStream_t stream, const Enqueue& enqueue) {
  cudaGraph_t graph = nullptr;
  cuda::cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  enqueue();
  cuda::cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  const std::size_t nodes = graph->operations.size();
  cudaGraphDestroy(graph);
  return nodes;
}

struct Nodes {
  std::size_t of_dispatch;
  std::size_t of_combine;
};

conformance::ScenarioSettings settings_of(RowOrders orders, RowOrder order) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 8, .hidden = 64};
  settings.options = conformance::options_for("mxfp8");
  settings.options.row_orders = orders;
  settings.row_orders = {order};
  return settings;
}

// Captures a dispatch and a combine of one rank and compares the nodes of the graph. With `keeps` the dispatch leaves a
// handle.
void expect_nodes(const conformance::ScenarioSettings& settings, const Nodes& expected, const std::string& name,
                  bool keeps = false) {
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    const Stream stream(0);
    const CallOptions call{.stream = stream.get(), .max_blocks = settings.max_blocks};
    Exchange exchange(world, settings.shape, settings.options);
    DeviceRound round(scenario, 0);
    const Handle handle(exchange);
    if (keeps) round.out.handle = handle.tensor();
    EXPECT_EQ(nodes_of(stream.get(), [&] { exchange.dispatch(round.in, round.out, call); }), expected.of_dispatch)
        << name;
    const auto pair = [&] {
      exchange.dispatch(round.in, round.out, call);
      exchange.combine(round.combine_in, round.combine_out, call);
    };
    EXPECT_EQ(nodes_of(stream.get(), pair), expected.of_dispatch + expected.of_combine) << name;
  });
}
void expect_nodes(RowOrders orders, RowOrder order, std::size_t of_dispatch, const char* results = "bf16") {
  conformance::ScenarioSettings settings = settings_of(orders, order);
  settings.options.result_format = format_named(results);
  expect_nodes(settings, {of_dispatch, 1}, std::string(to_string(order)) + " of " + to_string(orders));
}
void expect_nodes_with(const char* what, const Nodes& expected,
                       const std::function<void(conformance::ScenarioSettings&)>& change, bool keeps = false) {
  conformance::ScenarioSettings settings = settings_of(kUsualRowOrders, RowOrder::by_expert);
  change(settings);
  expect_nodes(settings, expected, what, keeps);
}

TEST(EmulatedGraphs, HaveAsFewKernelsAsTheOrderOfRowsNeeds) {
  emulated::set_gpus({});
  emulated::reset({});
  expect_nodes(kUsualRowOrders, RowOrder::by_expert, 1);
  expect_nodes(kUsualRowOrders, RowOrder::by_expert, 1, "nvfp4");
  expect_nodes(kUsualRowOrders, RowOrder::padded, 1);
  expect_nodes(kUsualRowOrders, RowOrder::in_place, 1);
  expect_nodes(kAllOrders, RowOrder::by_expert, 2);  // a kernel lists tokens
  expect_nodes(kAllOrders, RowOrder::by_source, 1);
  expect_nodes(kAllOrders, RowOrder::padded, 2);
  expect_nodes(kAllOrders, RowOrder::in_place, 2);
  EXPECT_EQ(emulated::failure(), "");
}

TEST(EmulatedGraphs, HaveAsFewKernelsAsTheOptionsNeed) {
  using Settings = conformance::ScenarioSettings;
  emulated::set_gpus({});
  emulated::reset({});
  expect_nodes_with("bias", {1, 1}, [](Settings& s) { s.num_bias = 2; });
  expect_nodes_with("late weights", {1, 1}, [](Settings& s) {
    s.options.late_weights = true;
    s.weights_at = conformance::WeightsAt::combine;
  });
  expect_nodes_with("narrow weights", {1, 1}, [](Settings& s) { s.weight_dtype = DType::bf16; });
  expect_nodes_with("narrow weights of exact sums", {1, 1}, [](Settings& s) {
    s.options.reduction = Reduction::exact;
    s.weight_dtype = DType::f16;
  });
  expect_nodes_with("weights home", {1, 1}, [](Settings& s) { s.options.returns_weights = true; });
  expect_nodes_with("weights in both directions, and bias", {1, 1}, [](Settings& s) {
    s.options.late_weights = true;
    s.options.returns_weights = true;
    s.weights_at = conformance::WeightsAt::combine;
    s.num_bias = 1;
  });
  expect_nodes_with("zero padding", {2, 1}, [](Settings& s) { s.zero_padding = true; });
  expect_nodes_with(
      "a handle", {2, 1}, [](Settings&) {}, true);
  emulated::set_gpus({.multiprocessors = 8});
  expect_nodes_with("few blocks", {1, 1}, [](Settings& s) { s.max_blocks = cuda::kLeastBlocks; });
  expect_nodes_with("few blocks and many tokens, whose scales a kernel of their own stores", {2, 1}, [](Settings& s) {
    s.shape = {.ranks = 1, .experts = 5, .top_k = 2, .max_tokens = 600, .hidden = 1024};
    s.options = conformance::options_for("fp8_block128");
    s.max_blocks = cuda::kLeastBlocks;
  });
  EXPECT_EQ(emulated::failure(), "");
}

// What is left behind a dispatch is one kernel, however many parts of it meet.
TEST(EmulatedGraphs, HaveTwoKernelsInADispatchWhateverMeets) {
  using Settings = conformance::ScenarioSettings;
  emulated::set_gpus({.multiprocessors = 8});
  emulated::reset({});
  const auto many_tokens = [](Settings& s) {
    s.shape = {1, 5, 2, 600, 1024};
    s.options = conformance::options_for("fp8_block128");
    s.options.row_orders = kAllOrders;
    s.max_blocks = cuda::kLeastBlocks;
  };
  const auto all_at_once = [&](Settings& s) {
    many_tokens(s);
    s.zero_padding = true;
    s.weight_dtype = DType::bf16;
    s.num_bias = 2;
    s.options.returns_weights = true;
  };
  expect_nodes_with("scales and token lists", {2, 1}, many_tokens);
  expect_nodes_with(
      "scales and a handle", {2, 1},
      [&](Settings& s) {
        many_tokens(s);
        s.options.row_orders = kUsualRowOrders;
      },
      true);
  expect_nodes_with("scales and zero padding", {2, 1}, [&](Settings& s) {
    many_tokens(s);
    s.options.row_orders = kUsualRowOrders;
    s.zero_padding = true;
  });
  expect_nodes_with("all at once", {2, 1}, all_at_once);
  expect_nodes_with("all at once, and a handle", {2, 1}, all_at_once, true);
  for (const RowOrder order : {RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    expect_nodes_with(
        to_string(order), {2, 1},
        [&](Settings& s) {
          many_tokens(s);
          s.row_orders = {order};
          s.zero_padding = order != RowOrder::in_place;  // these have none
          s.weight_dtype = DType::bf16;
        },
        true);
  EXPECT_EQ(emulated::failure(), "");
}

}  // namespace
}  // namespace ferry::test
