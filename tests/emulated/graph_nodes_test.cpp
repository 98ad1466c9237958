// How many kernels a dispatch is in a captured graph, and its combine in the same one (docs/row-orders.md).
#include <gmock/gmock.h>

#include "conformance/rounds/rank_round.h"
#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"
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

// Captures a dispatch and a combine of one rank and compares the nodes of the graph.
void expect_nodes(RowOrders orders, RowOrder order, std::size_t of_dispatch, const char* results = "bf16") {
  conformance::ScenarioSettings settings;
  settings.shape = {1, 4, 2, 8, 64};
  settings.options = conformance::options_for("mxfp8");
  settings.options.row_orders = orders;
  settings.options.result_format = format_named(results);
  settings.row_orders = {order};
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  run_cuda_ranks(1, false, [&](World& world) {
    const Stream stream(0);
    const CallOptions call{.stream = stream.get()};
    Exchange exchange(world, settings.shape, settings.options);
    DeviceRound round(scenario, 0);
    EXPECT_EQ(nodes_of(stream.get(), [&] { exchange.dispatch(round.in, round.out, call); }), of_dispatch)
        << to_string(order) << " of " << to_string(orders);
    const auto pair = [&] {
      exchange.dispatch(round.in, round.out, call);
      exchange.combine(round.combine_in, round.combine_out, call);
    };
    EXPECT_EQ(nodes_of(stream.get(), pair), of_dispatch + 1) << to_string(order) << " of " << to_string(orders);
  });
}

TEST(EmulatedGraphs, HaveAsFewKernelsAsTheOrderOfRowsNeeds) {
  emulated::set_gpus({});
  emulated::reset({});
  expect_nodes(kUsualRowOrders, RowOrder::by_expert, 1);
  expect_nodes(kUsualRowOrders, RowOrder::by_expert, 1, "nvfp4");
  expect_nodes(kUsualRowOrders, RowOrder::padded, 2);
  expect_nodes(kUsualRowOrders, RowOrder::in_place, 2);
  expect_nodes(kAllOrders, RowOrder::by_expert, 2);
  expect_nodes(kAllOrders, RowOrder::by_source, 3);
  expect_nodes(kAllOrders, RowOrder::padded, 3);
  expect_nodes(kAllOrders, RowOrder::in_place, 3);
  EXPECT_EQ(emulated::failure(), "");
}

}  // namespace
}  // namespace ferry::test
