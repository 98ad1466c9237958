// Rounds that were captured once and are replayed with other tokens, ids and weights in the same tensors: nothing of
// the capture's routing may be left in what a replay does. Ranks share one GPU, each a thread with a stream of its own.
#include <gtest/gtest.h>

#include <latch>
#include <optional>

#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Failure;
using conformance::RankRound;
using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;

constexpr int kRanks = 4;
constexpr int kReplays = 24;

struct Captured {
  const char* name;
  const char* format;
  Reduction reduction;
  conformance::Form form;
};

// All with max_tokens on each rank, as a graph keeps its number. Every second one gives rows to all ranks, so that none
// can take the rows of one replay for those of the next.
constexpr const char* kRoutings[] = {"uniform",   "none",       "zipf",     "one_rank",
                                     "some_none", "one_expert", "own_rank", "same_experts"};

Scenario scenario_of(const Captured& captured, int replay, const RankMask& mask = {}) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, 40, 288};
  settings.options = conformance::options_for(captured.format, captured.reduction);
  settings.options.mask = mask;
  settings.routing = kRoutings[static_cast<std::size_t>(replay) % std::size(kRoutings)];
  settings.seed = 300 + static_cast<std::uint64_t>(replay);
  return conformance::make_scenario(settings);
}

struct Place {
  std::vector<std::byte>* host;
  const void* device;  // null: the format has none
};
std::vector<Place> inputs_of(RankRound& host, const DeviceRound& tensors) {
  const bool by_rank = tensors.in.topk_weights.data != nullptr;
  return {{&host.tokens, tensors.in.tokens.data},
          {&host.topk_ids, tensors.in.topk_ids.data},
          {&host.weights, by_rank ? tensors.in.topk_weights.data : tensors.combine_in.topk_weights.data},
          {&host.rows, tensors.combine_in.rows.data}};
}
std::vector<Place> outputs_of(RankRound& host, const DeviceRound& tensors) {
  return {{&host.payload, tensors.out.payload.data},         {&host.scales, tensors.out.scales.data},
          {&host.row_offsets, tensors.out.row_offsets.data}, {&host.expert_ids, tensors.out.expert_ids.data},
          {&host.src_info, tensors.out.src_info.data},       {&host.scales_offsets, tensors.out.scales_offsets.data},
          {&host.output, tensors.combine_out.tokens.data}};
}

void copy(const std::vector<Place>& places, cudaMemcpyKind kind, cudaStream_t stream) {
  for (const auto& [host, device] : places) {
    if (device == nullptr || host->empty()) continue;
    void* const there = const_cast<void*>(device);
    const bool in = kind == cudaMemcpyHostToDevice;
    cuda_check(cudaMemcpyAsync(in ? there : host->data(), in ? host->data() : there, host->size(), kind, stream),
               "cudaMemcpyAsync");
  }
}

// One rank: the tensors that calls get, or got when they were captured, and rounds of any scenario in them.
class RankOfReplays {
 public:
  RankOfReplays(World& world, const Captured& captured, const Scenario& first)
      : form_(captured.form),
        stream_(0),
        exchange_(world, first.settings.shape, first.settings.options),
        tensors_(first, world.rank()),
        // Room for the experts' output of any routing.
        rows_(static_cast<std::size_t>(capacity_of(first)) * static_cast<std::size_t>(first.settings.shape.hidden) *
              2) {
    tensors_.combine_in.rows =
        ConstTensor(rows_.data(), DType::bf16, {capacity_of(first), first.settings.shape.hidden});
  }

  void enqueue() {
    const CallOptions call{.stream = stream_};
    if (form_ == conformance::Form::one_call) {
      exchange_.dispatch(tensors_.in, tensors_.out, call);
      exchange_.combine(tensors_.combine_in, tensors_.combine_out, call);
      return;
    }
    exchange_.dispatch_async(tensors_.in, call);
    exchange_.dispatch_wait(tensors_.out, call);
    exchange_.combine_async(tensors_.combine_in, call);
    exchange_.combine_wait(tensors_.combine_out, call);
  }

  // Puts the scenario's inputs into the tensors and poison into the outputs, runs, and compares with the scenario.
  template <class Run>
  void check_round(const Scenario& scenario, const Scenario& before, const Run& run) {
    RankRound round(scenario, exchange_.rank());
    EXPECT_THROW(round.check_rows(), Failure) << "poison passes for rows";
    copy(inputs_of(round, tensors_), cudaMemcpyHostToDevice, stream_.get());
    copy(outputs_of(round, tensors_), cudaMemcpyHostToDevice, stream_.get());
    wait();
    run();
    wait();  // a copy to pageable memory behind a kernel that waits would hold up the launches of other ranks' threads
    copy(outputs_of(round, tensors_), cudaMemcpyDeviceToHost, stream_.get());
    wait();
    exchange_.check();
    round.check_rows();
    round.check_tokens();
    expect_other(round, before);
  }

  void wait() const { cuda_check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }
  cudaStream_t stream() const { return stream_.get(); }
  Exchange& exchange() { return exchange_; }

 private:
  std::int64_t capacity_of(const Scenario& scenario) const {
    return scenario.row_capacity[static_cast<std::size_t>(exchange_.rank())];
  }
  // That the checks tell this round from the one before it.
  void expect_other(const RankRound& round, const Scenario& before) const {
    RankRound old(before, exchange_.rank());
    old.payload = round.payload;
    old.scales = round.scales;
    old.row_offsets = round.row_offsets;
    old.src_info = round.src_info;
    old.expert_ids = round.expert_ids;
    old.output = round.output;
    EXPECT_THROW(old.check_rows(), Failure) << "the routing before passes for this one";
    EXPECT_THROW(old.check_tokens(), Failure) << "the sums before pass for these";
  }

  conformance::Form form_;
  Stream stream_;
  Exchange exchange_;
  DeviceRound tensors_;
  cuda::DeviceMemory rows_;
};

class GpuGraphs : public testing::TestWithParam<Captured> {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
};

TEST_P(GpuGraphs, CarryTheTokensAndTheRoutingOfTheirReplay) {
  std::vector<Scenario> scenarios;
  for (int replay = 0; replay <= kReplays + 1; ++replay) scenarios.push_back(scenario_of(GetParam(), replay));
  const auto body = [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    RankOfReplays rank(world, GetParam(), scenarios[0]);
    const CapturedGraph graph(rank.stream(), [&] { rank.enqueue(); });
    rank.wait();
    world.barrier();  // what allocates may wait for the device
    for (std::size_t replay = 1; replay <= kReplays; ++replay)
      rank.check_round(scenarios[replay], scenarios[replay - 1], [&] { graph.launch(rank.stream()); });
    // Calls that are not captured go on from where the replays are, and throw what their kernels reported.
    rank.check_round(scenarios[kReplays + 1], scenarios[kReplays], [&] { rank.enqueue(); });
    world.barrier();
  };
  run_cuda_ranks(kRanks, false, body, kRanks);
}

class Leaving {
 public:
  explicit Leaving(std::latch& left) : left_(left) {}
  ~Leaving() { left_.count_down(); }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

 private:
  std::latch& left_;
};

// A mask that has grown is in each graph that is captured since, whichever is launched first, and in no earlier one.
TEST_P(GpuGraphs, KeepTheMaskOfTheirCapture) {
  RankMask mask(kRanks);
  mask[kRanks - 1] = true;
  const Scenario first = scenario_of(GetParam(), 0);
  std::vector<Scenario> scenarios;
  for (const int replay : {1, 2, 4, 6}) scenarios.push_back(scenario_of(GetParam(), replay, mask));
  std::latch others_left(kRanks - 1);
  const auto body = [&](World& world) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    std::optional<Leaving> leaving;
    if (!is_masked(mask, world.rank())) leaving.emplace(others_left);
    RankOfReplays rank(world, GetParam(), first);
    const CapturedGraph of_all(rank.stream(), [&] { rank.enqueue(); });
    rank.wait();
    world.barrier();
    rank.check_round(first, scenarios[1], [&] { of_all.launch(rank.stream()); });
    world.barrier();
    if (!leaving) return others_left.wait();  // to free memory is to wait for the device, which holds launches up
    rank.exchange().add_to_mask(mask);
    const CapturedGraph grown(rank.stream(), [&] { rank.enqueue(); });
    const CapturedGraph launched_first(rank.stream(), [&] { rank.enqueue(); });
    rank.wait();
    world.barrier(mask);
    rank.check_round(scenarios[1], scenarios[0], [&] { launched_first.launch(rank.stream()); });
    rank.check_round(scenarios[2], scenarios[1], [&] { grown.launch(rank.stream()); });
    rank.check_round(scenarios[3], scenarios[2], [&] { rank.enqueue(); });
    world.barrier(mask);
  };
  run_cuda_ranks(kRanks, false, body, kRanks);
}

using conformance::Form;
INSTANTIATE_TEST_SUITE_P(
    Captured, GpuGraphs,
    testing::Values(Captured{"bf16_by_rank", "bf16", Reduction::by_rank, Form::one_call},
                    Captured{"bf16_exact", "bf16", Reduction::exact, Form::split},
                    Captured{"fp8_block128_by_rank", "fp8_block128", Reduction::by_rank, Form::split},
                    Captured{"fp8_block128_exact", "fp8_block128", Reduction::exact, Form::one_call}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ferry::test
