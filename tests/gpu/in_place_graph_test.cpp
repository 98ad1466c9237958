// Rows in_place in a graph: a dispatch and a matmul that gathers its rows from the arrival slots, captured once and
// replayed behind each other while one rank is slow. Which copy of the slots a replay fills is decided on the device,
// so a captured address of one copy would be wrong in every second one. The others are ahead of the slow rank
// meanwhile, and may not write to what its matmul still reads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gathering_matmul.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;

constexpr int kRanks = 2;
constexpr int kReplays = 3;
constexpr int kColumns = 8;
constexpr int kDelay = 2000;  // microseconds

Scenario scenario_of(int copies, int replay) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 6, 3, 12, 64};
  settings.options = conformance::options_for("bf16");
  settings.options.expert_alignment = 4;
  settings.options.message_copies = copies;
  settings.row_orders = {RowOrder::in_place};
  settings.routing = replay % 2 == 0 ? "uniform" : "zipf";  // of max_tokens on each rank, as a graph keeps its number
  settings.seed = 40 + static_cast<std::uint64_t>(replay);
  return conformance::make_scenario(settings);
}

// From what the oracle says of rows, in host memory.
std::vector<float> expected_of(const Scenario& scenario, int rank) {
  const test::ExpectedRows& rows = scenario.rows[static_cast<std::size_t>(rank)];
  const auto hidden = static_cast<std::size_t>(scenario.settings.shape.hidden);
  std::vector<float> out;
  int group = 0;
  for (std::size_t row = 0; row < rows.row_offsets.back(); ++row) {
    while (rows.row_offsets[static_cast<std::size_t>(group) + 1] <= row) ++group;
    for (int column = 0; column < kColumns; ++column) {
      float sum = 0;
      for (std::size_t h = 0; !test::is_padding(rows.rows[row]) && h < hidden; ++h) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, rows.payload.data() + 2 * (row * hidden + h), sizeof bits);
        sum = std::fma(test::from_bf16(bits), matmul_weight(group, static_cast<int>(h), column), sum);
      }
      out.push_back(sum);
    }
  }
  return out;
}

int device_of(const World& world) { return world.rank() / ranks_per_gpu(kRanks); }

class RankOfMatmuls {
 public:
  RankOfMatmuls(World& world, const std::vector<Scenario>& scenarios, bool is_slow)
      : scenarios_(scenarios),
        is_slow_(is_slow),
        stream_(device_of(world)),
        exchange_(world, scenarios[0].settings.shape, scenarios[0].settings.options),
        result_(results_bytes()) {
    for (const Scenario& each : scenarios_) {
      rounds_.push_back(std::make_unique<DeviceRound>(each, world.rank()));
      results_.push_back(std::make_unique<cuda::DeviceMemory>(results_bytes()));
    }
    load_gathering_matmul();
  }

  // The tensors of the first round are those of the graph.
  void enqueue() {
    const DeviceRound& round = *rounds_[0];
    exchange_.dispatch(round.in, round.out, {.stream = stream_});
    if (is_slow_) launch_delay(kDelay, stream_.get());
    const ArrivalSlots slots = exchange_.arrival_slots();
    launch_gathering_matmul({.slots = slots.payload.as<std::uint16_t>(),
                             .slot_stride = slots.payload.strides[2],
                             .gather = round.out.gather.as<std::int32_t>(),
                             .row_offsets = round.out.row_offsets.as<std::uint32_t>(),
                             .groups = exchange_.layout().groups,
                             .hidden = scenarios_[0].settings.shape.hidden,
                             .columns = kColumns,
                             .out = result_.as<float>()},
                            stream_.get());
  }
  CapturedGraph captured() {
    return CapturedGraph(stream_.get(), [&] { enqueue(); });
  }

  // All replays, without a wait of the host between them.
  void replay(const CapturedGraph& graph) {
    for (std::size_t i = 1; i < rounds_.size(); ++i) {
      const DeviceRound& round = *rounds_[i];
      copy(rounds_[0]->in.tokens, round.in.tokens);
      copy(rounds_[0]->in.topk_ids, round.in.topk_ids);
      if (round.in.topk_weights) copy(rounds_[0]->in.topk_weights, round.in.topk_weights);
      graph.launch(stream_.get());
      cuda_check(
          cudaMemcpyAsync(results_[i]->data(), result_.data(), results_bytes(), cudaMemcpyDefault, stream_.get()),
          "cudaMemcpyAsync");
    }
  }
  void wait() const { cuda_check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }

  void check() {
    exchange_.check();
    for (std::size_t i = 1; i < rounds_.size(); ++i) {
      const std::vector<float> want = expected_of(scenarios_[i], exchange_.rank());
      std::vector<float> got(want.size());
      cuda_check(cudaMemcpy(got.data(), results_[i]->data(), got.size() * sizeof(float), cudaMemcpyDeviceToHost),
                 "cudaMemcpy");
      EXPECT_EQ(got, want) << "rank " << exchange_.rank() << ", replay " << i;
      EXPECT_NE(want, expected_of(scenarios_[i - 1], exchange_.rank())) << "replays have other tokens";
    }
  }

 private:
  std::size_t results_bytes() const {
    std::int64_t most = 0;
    for (const Scenario& each : scenarios_)
      for (const std::int64_t rows : each.row_capacity) most = std::max(most, rows);
    return static_cast<std::size_t>(most) * kColumns * sizeof(float);
  }
  void copy(const ConstTensor& to, const ConstTensor& from) {
    cuda_check(cudaMemcpyAsync(const_cast<void*>(to.data), from.data,
                               static_cast<std::size_t>(from.elements()) * size_of(from.dtype), cudaMemcpyDefault,
                               stream_.get()),
               "cudaMemcpyAsync");
  }

  const std::vector<Scenario>& scenarios_;
  bool is_slow_;
  Stream stream_;
  Exchange exchange_;
  cuda::DeviceMemory result_;
  std::vector<std::unique_ptr<DeviceRound>> rounds_;
  std::vector<std::unique_ptr<cuda::DeviceMemory>> results_;
};

class GpuInPlaceGraphs : public testing::TestWithParam<int> {};

TEST_P(GpuInPlaceGraphs, GatherTheRowsOfTheirReplayWhileOneRankIsSlow) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  std::vector<Scenario> scenarios;
  for (int replay = 0; replay <= kReplays; ++replay) scenarios.push_back(scenario_of(GetParam(), replay));
  for (int slow = 0; slow < kRanks; ++slow)
    run_cuda_ranks(
        kRanks, false,
        [&](World& world) {
          cuda_check(cudaSetDevice(device_of(world)), "cudaSetDevice");
          RankOfMatmuls rank(world, scenarios, world.rank() == slow);
          const CapturedGraph graph = rank.captured();
          rank.wait();
          world.barrier();  // what allocates may wait for the device
          rank.replay(graph);
          rank.wait();
          world.barrier();
          rank.check();
          world.barrier();
        },
        ranks_per_gpu(kRanks));
}

INSTANTIATE_TEST_SUITE_P(Copies, GpuInPlaceGraphs, testing::Values(2, 4));

}  // namespace
}  // namespace ferry::test
