// The exchange on GPUs: dispatches in a chain, and dispatch-combine pairs in a chain.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/trace.h"
#include "tool/bench/base/bench_given.h"
#include "tool/bench/base/bench_routing.h"
#include "tool/bench/base/bench_trace.h"
#include "tool/bench/cuda/graph_timer.h"
#include "tool/bench/cuda/kernel_times.h"
#include "tool/bench/cuda/measure.h"
#include "tool/bench/cuda/rank_speeds.h"
#include "tool/bench/cuda/wire_kernels.h"
#include "tool/ranks/gpus.h"
#include "tool/text/human.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;
using cuda::DeviceMemory;

constexpr int kMostSets = 64;
constexpr double kCaches = 3;  // how many times the L2 cache all sets of a rank fill together

// One rank's tensors of one round, in one piece of device memory.
class DeviceSet {
 public:
  DeviceSet(const BenchCase& bench, const RowLayout& layout, int rank, int index, cudaStream_t stream) {
    const Shape& s = bench.shape;
    const std::int64_t n = s.max_tokens, rows = layout.least_rows(bench.rows);
    std::vector<std::pair<BasicTensor<void>*, std::size_t>> places;
    const auto plan = [&](Tensor& tensor, DType dtype, const std::vector<std::int64_t>& extents) {
      tensor = Tensor(nullptr, dtype, extents);
      places.emplace_back(&tensor, bytes_);
      bytes_ += (static_cast<std::size_t>(tensor.elements()) * size_of(dtype) + 255) / 256 * 256;
    };
    Tensor tokens, encoded, scales, ids, weights, results;
    plan(tokens, DType::bf16, {n, s.hidden});
    if (bench.encoded) {
      plan(encoded, DType::u8, {n, layout.payload_row_bytes});
      plan(scales, layout.scale_dtype, {n, layout.scales_per_row});
    }
    if (bench.replays) plan(out.handle, DType::u8, {layout.handle_bytes});
    plan(ids, DType::i32, {n, s.top_k});
    plan(weights, DType::f32, {n, s.top_k});
    plan(results, DType::bf16, {rows, s.hidden});
    for (const TensorSpec& spec : dispatch_outputs(layout, rows, bench.rows))
      plan(out.*spec.field, spec.dtype, spec.shape);
    plan(sums.tokens, DType::bf16, {n, s.hidden});
    memory_ = std::make_unique<DeviceMemory>(bytes_);
    for (const auto& [tensor, place] : places) tensor->data = memory_->data() + place;

    const auto seed = static_cast<std::uint32_t>(rank * kMostSets + index + 1);
    launch_fill_bf16(static_cast<std::byte*>(tokens.data), static_cast<std::size_t>(tokens.elements()) * 2, seed,
                     stream);
    launch_fill_bf16(static_cast<std::byte*>(results.data), static_cast<std::size_t>(results.elements()) * 2,
                     seed + 12345, stream);
    const Routing routing = make_routing(bench, rank, index);
    copy(ids, routing.ids.data(), routing.ids.size() * 4, stream);
    copy(weights, routing.weights.data(), routing.weights.size() * 4, stream);
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    in.tokens = tokens;
    in.topk_ids = ids;
    in.row_order = bench.rows;
    if (bench.encoded) encode(bench, layout, tokens, encoded, scales);
    combine_in.rows = results;
    if (bench.chooses) combine_in.reduction = bench.reduction;
    (bench.reduction == Reduction::exact ? combine_in.topk_weights : in.topk_weights) = weights;
  }

  DispatchInput in;
  DispatchOutput out;
  CombineInput combine_in;
  CombineOutput sums;
  std::size_t bytes() const { return bytes_; }
  // From now on this round repeats the routing of its first one.
  void replay() { give_handle(in, out, combine_in); }

 private:
  // On the host, before anything is measured.
  void encode(const BenchCase& bench, const RowLayout& layout, const Tensor& tokens, const Tensor& encoded,
              const Tensor& scales) {
    const auto bytes_of = [](const Tensor& tensor) {
      return static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype);
    };
    std::vector<std::byte> bf16(bytes_of(tokens)), codes(bytes_of(encoded)), of_blocks(bytes_of(scales));
    cuda_check(cudaMemcpy(bf16.data(), tokens.data, bf16.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    encode_tokens(bench, layout, bf16.data(), codes.data(), of_blocks.data());
    cuda_check(cudaMemcpy(encoded.data, codes.data(), codes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    cuda_check(cudaMemcpy(scales.data, of_blocks.data(), of_blocks.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    give_encoded(in, layout, tokens.shape[0], static_cast<const std::byte*>(encoded.data),
                 static_cast<const std::byte*>(scales.data));
  }
  static void copy(const Tensor& to, const void* from, std::size_t bytes, cudaStream_t stream) {
    cuda_check(cudaMemcpyAsync(to.data, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  }
  std::size_t bytes_ = 0;
  std::unique_ptr<DeviceMemory> memory_;
};

// Enough sets that a round finds neither its tokens nor its rows in the L2 cache; at few tokens kMostSets do not reach.
int sets_for(const BenchCase& bench, const GpuInfo& gpu) {
  const GpuBytes one = gpu_bytes(bench, 1);
  const double touched = one.dispatch.device + one.combine.device;
  return static_cast<int>(std::clamp(std::ceil(kCaches * static_cast<double>(gpu.l2_bytes) / touched), 2.0,
                                     static_cast<double>(kMostSets)));
}

void require_gpu_memory(const BenchCase& bench, int sets, const GpuInfo& gpu) {
  const RowLayout layout = row_layout(bench.shape, exchange_options(bench), 0);
  const auto rows = static_cast<double>(layout.least_rows(bench.rows));
  const double needed = static_cast<double>(memory_use(bench.shape, exchange_options(bench)).total) +
                        sets * (rows * static_cast<double>(layout.payload_row_bytes + 2 * bench.shape.hidden + 16) +
                                4.0 * bench.shape.max_tokens * bench.shape.hidden);
  if (needed > static_cast<double>(gpu.memory_available_bytes))
    throw Error(ErrorKind::system,
                fmt::format("the benchmark of {} needs {} of memory on each GPU, but {} are available: choose fewer "
                            "tokens",
                            to_string(bench.shape), human_bytes(static_cast<std::uint64_t>(needed)),
                            human_bytes(gpu.memory_available_bytes)));
}

// A few more rounds, one after the other and in no graph. Ranks that are threads share the trace of the first.
template <class Pair>
void trace_rounds(const Ranks& ranks, World& world, const BenchCase& bench, const Pair& pair, const Stream& stream) {
  const bool records = ranks.is_part() || world.rank() == 0;
  std::optional<Trace> trace;
  if (records) trace.emplace();
  world.barrier();
  for (int round = 0; round < BenchTrace::kRounds; ++round) pair(round);
  stream.wait();
  world.barrier();
  if (ranks.is_part()) return bench.trace->add_of_all(world, trace->events());
  if (records) bench.trace->add(trace->events());
}

// The calls of a round, whole or in halves.
class Calls {
 public:
  Calls(Exchange& exchange, const BenchCase& bench, cudaStream_t stream)
      : exchange_(exchange), in_halves_(bench.wait_blocks >= 0) {
    first_.stream = second_.stream = stream;
    first_.max_blocks = bench.max_blocks;
    second_.max_blocks = std::max(0, bench.wait_blocks);
  }

  void dispatch(const DeviceSet& set) const {
    if (!in_halves_) return exchange_.dispatch(set.in, set.out, first_);
    exchange_.dispatch_async(set.in, first_);
    exchange_.dispatch_wait(set.out, second_);
  }
  void combine(const DeviceSet& set) const {
    if (!in_halves_) return exchange_.combine(set.combine_in, set.sums, first_);
    exchange_.combine_async(set.combine_in, first_);
    exchange_.combine_wait(set.sums, second_);
  }

 private:
  Exchange& exchange_;
  bool in_halves_;
  CallOptions first_, second_;
};

void measure_rank(const Ranks& ranks, World& world, const BenchCase& bench, int num_sets, GpuMeasurement& measured) {
  const cuda::DeviceScope scope(ranks.device_of(world));
  Exchange exchange(world, bench.shape, exchange_options(bench));
  const Stream stream;
  std::vector<std::unique_ptr<DeviceSet>> sets;
  for (int index = 0; index < num_sets; ++index)
    sets.push_back(std::make_unique<DeviceSet>(bench, exchange.layout(), world.rank(), index, stream));
  const Calls calls(exchange, bench, stream);
  const auto dispatch = [&](int round) { calls.dispatch(*sets[static_cast<std::size_t>(round) % sets.size()]); };
  const auto pair = [&](int round) {
    const DeviceSet& set = *sets[static_cast<std::size_t>(round) % sets.size()];
    calls.dispatch(set);
    calls.combine(set);
  };
  world.barrier();  // allocating on one device may wait for kernels of another, and those for this rank
  for (int round = 0; round < num_sets; ++round) pair(round);
  stream.wait();
  for (const auto& set : sets)
    if (bench.replays) set->replay();
  const GraphTiming dispatches = time_graph(world, stream, num_sets, bench.effort, dispatch);
  const GraphTiming pairs = time_graph(world, stream, num_sets, bench.effort, pair);
  stream.wait();
  exchange.check();
  world.barrier();
  const std::vector<GpuKernel> dispatch_kernels = time_kernels(world, stream, [&] { dispatch(0); });
  const std::vector<GpuKernel> pair_kernels = time_kernels(world, stream, [&] { pair(0); });
  exchange.check();
  world.barrier();
  if (bench.trace != nullptr) trace_rounds(ranks, world, bench, pair, stream);
  if (!ranks.is_part() && world.rank() != 0) return;  // threads of one process; every process has its own
  measured.dispatch = {dispatches.seconds};
  measured.dispatch_chain = dispatches.chain;
  measured.pair = {pairs.seconds};
  measured.pair_chain = pairs.chain;
  measured.dispatch_kernels = dispatch_kernels;
  measured.pair_kernels = pair_kernels;
  measured.multiprocessors = multiprocessors_of(ranks.device_of(world));
  measured.set_bytes = static_cast<double>(sets[0]->bytes()) * num_sets;
  measured.memory_bytes = exchange.memory_bytes();
}

class CudaBench final : public GpuBench {
 public:
  CudaBench(const Backend& backend, int ranks, int nodes, bool baseline)
      : backend_(backend), ranks_(backend.make(ranks, nodes)) {
    if (baseline && !ranks_.is_part()) nccl_ = make_nccl(ranks_);
    gpu_ = gpus().infos().front();
    hardware_ = fmt::format("{} x {}, CUDA {}", ranks, gpu_.name, gpus().versions());
    speeds_ = measure_speeds(ranks_);
  }
  const char* backend() const override { return backend_.name; }
  const GpuSpeeds& speeds() const override { return speeds_; }
  const std::string& hardware() const override { return hardware_; }
  GpuMeasurement measure(const BenchCase& bench, bool baseline) override {
    const int sets = sets_for(bench, gpu_);
    require_gpu_memory(bench, sets, gpu_);
    GpuMeasurement measured;
    measured.input_sets = sets;
    measured.bytes = gpu_bytes(bench, sets);
    ranks_.run([&](World& world) { measure_rank(ranks_, world, bench, sets, measured); });
    if (baseline && nccl_ != nullptr) measured.baseline = nccl_->measure(bench);
    if (baseline && nccl_ == nullptr) measured.one_node = measure_one_node(bench, sets);
    return measured;
  }

 private:
  OneNodeTimes measure_one_node(const BenchCase& bench, int sets) const {
    const Ranks node = backend_.make(bench.shape.ranks, 1);
    GpuMeasurement measured;
    node.run([&](World& world) { measure_rank(node, world, bench, sets, measured); });
    return {measured.dispatch.at(0.5), measured.pair.at(0.5)};
  }

  const Backend& backend_;
  Ranks ranks_;
  std::unique_ptr<Nccl> nccl_;
  GpuInfo gpu_;
  std::string hardware_;
  GpuSpeeds speeds_;
};

}  // namespace

std::unique_ptr<GpuBench> make_cuda_bench(const Backend& backend, int ranks, int nodes, bool baseline) {
  return std::make_unique<CudaBench>(backend, ranks, nodes, baseline);
}

}  // namespace ferry::app
