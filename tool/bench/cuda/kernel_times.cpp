#include "tool/bench/cuda/kernel_times.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <type_traits>

#include "ferry/detail/cuda/state/cuda_check.h"
#include "tool/bench/cuda/graph_timer.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;

constexpr int kFirstReplays = 3;
constexpr int kReplays = 11;
constexpr int kRoundsAhead = 2;  // so that the ranks begin together

struct DestroysGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
using CapturedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroysGraph>;
using RunnableGraph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroysGraph>;

RunnableGraph instantiate(const CapturedGraph& graph) {
  cudaGraphExec_t made = nullptr;
  cuda_check(cudaGraphInstantiate(&made, graph.get(), 0), "cudaGraphInstantiate");
  return RunnableGraph(made);
}

// The kernels of a graph in which each follows the one before; empty: it is no such graph.
std::vector<cudaGraphNode_t> line_of(const CapturedGraph& graph) {
  std::size_t count = 0;
  cuda_check(cudaGraphGetNodes(graph.get(), nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  cuda_check(cudaGraphGetNodes(graph.get(), nodes.data(), &count), "cudaGraphGetNodes");
  std::map<cudaGraphNode_t, cudaGraphNode_t> next;  // of the null pointer the first
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    cuda_check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    std::size_t before = 0;
    cuda_check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &before), "cudaGraphNodeGetDependencies");
    if (type != cudaGraphNodeTypeKernel || before > 1) return {};
    cudaGraphNode_t from = nullptr;
    cudaGraphEdgeData edge{};
    if (before == 1)
      cuda_check(cudaGraphNodeGetDependencies(node, &from, &edge, &before), "cudaGraphNodeGetDependencies");
    if (!next.emplace(from, node).second) return {};
  }
  std::vector<cudaGraphNode_t> line;
  for (auto found = next.find(nullptr); found != next.end(); found = next.find(line.back()))
    line.push_back(found->second);
  return line.size() == count ? line : std::vector<cudaGraphNode_t>{};
}

// The same kernels with events between them.
class TimedLine {
 public:
  // `graph` must outlive it: its nodes own the parameters.
  explicit TimedLine(const CapturedGraph& graph) {
    const std::vector<cudaGraphNode_t> kernels = line_of(graph);
    if (kernels.empty()) return;
    cudaGraph_t made = nullptr;
    cuda_check(cudaGraphCreate(&made, 0), "cudaGraphCreate");
    const CapturedGraph timed(made);
    cudaGraphNode_t last = nullptr;
    add_event(made, last);
    for (cudaGraphNode_t kernel : kernels) {
      cudaKernelNodeParams params{};
      cuda_check(cudaGraphKernelNodeGetParams(kernel, &params), "cudaGraphKernelNodeGetParams");
      cudaGraphNode_t copy = nullptr;
      cuda_check(cudaGraphAddKernelNode(&copy, made, &last, 1, &params), "cudaGraphAddKernelNode");
      cuda_check(cudaGraphKernelNodeCopyAttributes(copy, kernel), "cudaGraphKernelNodeCopyAttributes");
      blocks_.push_back(static_cast<int>(params.gridDim.x * params.gridDim.y * params.gridDim.z));
      last = copy;
      add_event(made, last);
    }
    runnable_ = instantiate(timed);
  }
  ~TimedLine() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  TimedLine(const TimedLine&) = delete;
  TimedLine& operator=(const TimedLine&) = delete;

  bool can_run() const { return runnable_ != nullptr; }
  const std::vector<int>& blocks() const { return blocks_; }
  void launch(cudaStream_t stream) const { cuda_check(cudaGraphLaunch(runnable_.get(), stream), "cudaGraphLaunch"); }
  // Of each kernel, after a launch has ended.
  std::vector<float> milliseconds() const {
    std::vector<float> times(blocks_.size());
    for (std::size_t i = 0; i < times.size(); ++i)
      cuda_check(cudaEventElapsedTime(&times[i], events_[i], events_[i + 1]), "cudaEventElapsedTime");
    return times;
  }

 private:
  void add_event(cudaGraph_t graph, cudaGraphNode_t& last) {
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreate(&event), "cudaEventCreate");
    events_.push_back(event);
    cudaGraphNode_t node = nullptr;
    cuda_check(
        cudaGraphAddEventRecordNode(&node, graph, last == nullptr ? nullptr : &last, last == nullptr ? 0 : 1, event),
        "cudaGraphAddEventRecordNode");
    last = node;
  }

  std::vector<cudaEvent_t> events_;  // one more than kernels
  std::vector<int> blocks_;
  RunnableGraph runnable_;
};

// Null where a call of CUDA fails: then the times of the operation are still good.
std::unique_ptr<TimedLine> make_line(const CapturedGraph& graph) {
  try {
    return std::make_unique<TimedLine>(graph);
  } catch (const Error&) {
    cudaGetLastError();
    return nullptr;
  }
}

bool all_say(World& world, bool mine) {
  const std::uint8_t said = mine ? 1 : 0;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&said, 1)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  return std::ranges::count(all, 0) == 0;
}

}  // namespace

std::vector<GpuKernel> time_kernels(World& world, cudaStream_t stream, const std::function<void()>& enqueue) {
  const CapturedGraph graph(capture(stream, enqueue));
  const std::unique_ptr<TimedLine> line = make_line(graph);
  if (!all_say(world, line != nullptr && line->can_run())) return {};
  const RunnableGraph lead = instantiate(graph);
  std::vector<std::vector<float>> times(line->blocks().size());
  for (int replay = -kFirstReplays; replay < kReplays; ++replay) {
    world.barrier();
    for (int round = 0; round < kRoundsAhead; ++round)
      cuda_check(cudaGraphLaunch(lead.get(), stream), "cudaGraphLaunch");
    line->launch(stream);
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const std::vector<float> each = line->milliseconds();
    for (std::size_t i = 0; replay >= 0 && i < each.size(); ++i) times[i].push_back(each[i]);
  }
  std::vector<GpuKernel> kernels;
  double all = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    std::ranges::sort(times[i]);
    kernels.push_back({line->blocks()[i], static_cast<double>(times[i][kReplays / 2])});
    all += kernels.back().share;
  }
  for (GpuKernel& kernel : kernels) kernel.share /= all;
  return kernels;
}

}  // namespace ferry::app
