// dispatch_all and combine_all over GPUs: one host thread enqueues for all ranks, with a stream for each.
#include <gtest/gtest.h>

#include <thread>

#include "gpu/captured_graph.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;

Scenario scenario_of(int ranks, Reduction reduction) {
  ScenarioSettings settings;
  settings.shape = {ranks, 3 * ranks + 1, 3, 40, 288};
  settings.options = conformance::options_for("nvfp4", reduction);
  settings.seed = 91;
  return conformance::make_scenario(settings);
}

// All ranks of this process, their tensors on their GPUs.
class AllRanks {
 public:
  AllRanks(const Scenario& scenario, const std::vector<int>& devices) : devices_(devices) {
    worlds_ = make_cuda_worlds(devices);
    owned_.resize(devices.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < devices.size(); ++rank)
      threads.emplace_back([&, rank] {
        owned_[rank] = std::make_unique<Exchange>(*worlds_[rank], scenario.settings.shape, scenario.settings.options);
      });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      const cuda::DeviceScope scope(devices[rank]);
      streams_.push_back(std::make_unique<Stream>(devices[rank]));
      calls.push_back({.stream = *streams_.back()});
      rounds.push_back(std::make_unique<DeviceRound>(scenario, static_cast<int>(rank)));
      exchanges.push_back(owned_[rank].get());
      in.push_back(rounds.back()->in);
      out.push_back(rounds.back()->out);
      combine_in.push_back(rounds.back()->combine_in);
      combine_out.push_back(rounds.back()->combine_out);
    }
  }

  void enqueue() {
    dispatch_all(exchanges, in, out, calls);
    combine_all(exchanges, combine_in, combine_out, calls);
  }
  void wait() const {
    for (const auto& stream : streams_) cuda_check(cudaStreamSynchronize(stream->get()), "cudaStreamSynchronize");
  }
  void check() {
    wait();
    for (std::size_t rank = 0; rank < rounds.size(); ++rank) {
      const cuda::DeviceScope scope(devices_[rank]);
      rounds[rank]->fetch();
      rounds[rank]->host.check_rows();
      rounds[rank]->host.check_tokens();
    }
  }
  cudaStream_t stream(std::size_t rank) const { return streams_[rank]->get(); }

  std::vector<Exchange*> exchanges;
  std::vector<CallOptions> calls;
  std::vector<std::unique_ptr<DeviceRound>> rounds;
  std::vector<DispatchInput> in;
  std::vector<DispatchOutput> out;
  std::vector<CombineInput> combine_in;
  std::vector<CombineOutput> combine_out;

 private:
  std::vector<int> devices_;
  std::vector<std::unique_ptr<World>> worlds_;
  std::vector<std::unique_ptr<Exchange>> owned_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

std::vector<int> one_rank_per_gpu() {
  std::vector<int> devices;
  for (int device = 0; device < std::min(num_cuda_devices(), 4); ++device) devices.push_back(device);
  return devices;
}

class GpuAllExchanges : public GpuTest {};

TEST_F(GpuAllExchanges, TakeAStreamForEachFromOneHostThread) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    constexpr int kRanks = 4;
    std::vector<int> devices;
    for (int rank = 0; rank < kRanks; ++rank) devices.push_back(rank / ranks_per_gpu(kRanks));
    const Scenario scenario = scenario_of(kRanks, reduction);
    AllRanks all(scenario, devices);
    EXPECT_TRUE(all.exchanges[0]->takes_device_memory());
    for (int turn = 0; turn < 3; ++turn) all.enqueue();
    all.check();
  }
}

// The streams of all GPUs are captured from the first one's into one graph.
TEST_F(GpuAllExchanges, AreCapturedIntoOneGraph) {
  const std::vector<int> devices = one_rank_per_gpu();
  if (devices.size() < 2) GTEST_SKIP() << "this machine has one GPU; an exchange alone is not what is tested here";
  const Scenario scenario = scenario_of(static_cast<int>(devices.size()), Reduction::by_rank);
  AllRanks all(scenario, devices);
  std::vector<cuda::DeviceEvent> events(2 * devices.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const cuda::DeviceScope scope(devices[i / 2]);
    events[i].create();
  }
  const cuda::DeviceScope scope(devices[0]);
  const CapturedGraph graph(all.stream(0), [&] {
    cuda_check(cudaEventRecord(events[0].get(), all.stream(0)), "cudaEventRecord");
    for (std::size_t rank = 1; rank < devices.size(); ++rank)
      cuda_check(cudaStreamWaitEvent(all.stream(rank), events[0].get()), "cudaStreamWaitEvent");
    all.enqueue();
    for (std::size_t rank = 1; rank < devices.size(); ++rank) {
      const cuda::DeviceScope there(devices[rank]);
      cuda_check(cudaEventRecord(events[2 * rank].get(), all.stream(rank)), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(all.stream(0), events[2 * rank].get()), "cudaStreamWaitEvent");
    }
  });
  for (int replay = 0; replay < 3; ++replay) graph.launch(all.stream(0));
  all.check();
}

// An error of one exchange does not keep the others from being called.
TEST_F(GpuAllExchanges, CallEveryExchangeAlsoAfterAnError) {
  const std::vector<int> devices = one_rank_per_gpu();
  if (devices.size() < 2) GTEST_SKIP() << "this machine has one GPU; an exchange alone is not what is tested here";
  const Scenario scenario = scenario_of(static_cast<int>(devices.size()), Reduction::by_rank);
  AllRanks all(scenario, devices);
  all.in.front().topk_ids.dtype = DType::f32;
  EXPECT_THROW(dispatch_all(all.exchanges, all.in, all.out, all.calls), Error);
  all.in.front().topk_ids.dtype = scenario.settings.id_dtype;
  all.exchanges.front()->dispatch(all.in.front(), all.out.front(), all.calls.front());
  combine_all(all.exchanges, all.combine_in, all.combine_out, all.calls);
  all.check();
}

// Multiprocessors that are kept free for others: no kernel has more blocks than the rest.
TEST_F(GpuAllExchanges, LeaveTheMultiprocessorsThatAreReserved) {
  int multiprocessors = 0;
  cuda_check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  for (const int reserved : {32, multiprocessors - 3}) {
    ScenarioSettings settings;
    settings.shape = {.ranks = 1, .experts = 8, .top_k = 4, .max_tokens = 2000, .hidden = 1024};
    settings.options = conformance::options_for("fp8_block128");
    settings.options.gpu.reserve_sms = reserved;
    const Scenario scenario = conformance::make_scenario(settings);
    AllRanks all(scenario, {0});
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamBeginCapture(all.stream(0), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    all.enqueue();
    cuda_check(cudaStreamEndCapture(all.stream(0), &graph), "cudaStreamEndCapture");
    std::size_t count = 0;
    cuda_check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> nodes(count);
    cuda_check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
    EXPECT_GE(count, 2u);
    for (cudaGraphNode_t node : nodes) {
      cudaKernelNodeParams params{};
      cuda_check(cudaGraphKernelNodeGetParams(node, &params), "cudaGraphKernelNodeGetParams");
      EXPECT_LE(static_cast<int>(params.gridDim.x), multiprocessors - reserved);
    }
    cudaGraphDestroy(graph);
    all.enqueue();
    all.check();
  }
  ExchangeOptions options;
  options.gpu.reserve_sms = multiprocessors - 2;
  const int devices[] = {0};
  const auto worlds = make_cuda_worlds(devices);
  EXPECT_THROW(Exchange(*worlds[0], {.ranks = 1, .experts = 8, .top_k = 4, .max_tokens = 20, .hidden = 1024}, options),
               Error);
}

}  // namespace
}  // namespace ferry::test
