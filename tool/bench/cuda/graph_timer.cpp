#include "tool/bench/cuda/graph_timer.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;

constexpr int kLeadRounds = 4;
constexpr int kWarmUps = 3;
constexpr double kWarmUpSeconds = 0.2;  // before what counts: the clocks of an idle GPU take that long to rise
constexpr int kTrialReplays = 5;
constexpr double kFewestSeconds = 500e-6;  // that a replay takes, so that its first and last microsecond do not matter

class Graph {
 public:
  Graph(cudaStream_t stream, int rounds, const std::function<void(int)>& enqueue) {
    cudaGraph_t graph = capture(stream, [&] {
      for (int round = 0; round < rounds; ++round) enqueue(round);
    });
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    cuda_check(made, "cudaGraphInstantiate");
    cuda_check(cudaGraphUpload(exec_, stream), "cudaGraphUpload");
  }
  ~Graph() { cudaGraphExecDestroy(exec_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { cuda_check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

class Event {
 public:
  Event() { cuda_check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Seconds of a round in each of the replays, on this rank.
std::vector<double> replay(World& world, cudaStream_t stream, const Graph& lead, const Graph& graph, int rounds,
                           int warm_ups, int replays) {
  const Event begin, end;
  std::vector<double> seconds;
  for (int i = -warm_ups; i < replays; ++i) {
    world.barrier();
    lead.launch(stream);
    cuda_check(cudaEventRecord(begin, stream), "cudaEventRecord");
    graph.launch(stream);
    cuda_check(cudaEventRecord(end, stream), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i >= 0) seconds.push_back(milliseconds * 1e-3 / rounds);
  }
  return seconds;
}

// For each replay, the largest time of any rank.
std::vector<double> largest_of_ranks(World& world, const std::vector<double>& mine) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  std::vector<double> largest = mine;
  for (std::size_t i = 0; i < all.size(); ++i) largest[i % mine.size()] = std::max(largest[i % mine.size()], all[i]);
  return largest;
}

}  // namespace

Stream::Stream() {
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
void Stream::wait() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return graph;
}

GraphTiming time_graph(World& world, cudaStream_t stream, int chain, const BenchEffort& effort,
                       const std::function<void(int)>& enqueue) {
  const Graph lead(stream, std::min(kLeadRounds, chain), enqueue);
  GraphTiming timing;
  double each = 0;
  {
    const Graph trial(stream, chain, enqueue);
    const std::vector<double> tried =
        largest_of_ranks(world, replay(world, stream, lead, trial, chain, kWarmUps, kTrialReplays));
    each = BenchSamples{tried}.at(0.5);
  }
  const int repeats = static_cast<int>(std::ceil(kFewestSeconds / std::max(each * chain, 1e-7)));
  timing.chain = chain * std::clamp(repeats, 1, 64);
  const Graph graph(stream, timing.chain, [&](int round) { enqueue(round % chain); });
  const double of_replay = each * timing.chain;
  const double fitting = std::clamp(effort.seconds / of_replay, double{kFewestReplays}, double{kMostReplays});
  const int replays = effort.iterations > 0 ? effort.iterations : static_cast<int>(fitting);
  const int warm_ups = static_cast<int>(std::clamp(kWarmUpSeconds / of_replay, double{kWarmUps}, 400.0));
  timing.seconds = largest_of_ranks(world, replay(world, stream, lead, graph, timing.chain, warm_ups, replays));
  return timing;
}

}  // namespace ferry::app
