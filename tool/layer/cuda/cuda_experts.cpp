#include "tool/layer/cuda/cuda_experts.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "cuda/exchange/host_memory/host_tensors.h"
#include "ferry/cuda/activation.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "tool/layer/cuda/cublas_products.h"
#include "tool/layer/cuda/device_weights.h"
#include "tool/layer/cuda/expert_kernels.h"
#include "tool/layer/experts/expert_plan.h"
#include "tool/layer/rows/rank_buffers.h"
#include "tool/ranks/rank_calls.h"
#include "tool/text/human.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;

// Device memory that is made anew where more is needed.
class Room {
 public:
  explicit Room(const cuda::MemoryStream& stream, std::size_t bytes = 0) : stream_(stream) { reserve(bytes); }

  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset();
    memory_ = std::make_unique<cuda::StreamMemory>(stream_, bytes);
    bytes_ = bytes;
  }
  template <class T>
  void copy_in(std::span<const T> values) {
    reserve(values.size_bytes());
    if (!values.empty())
      cuda_check(
          cudaMemcpyAsync(memory_->data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream_.get()),
          "cudaMemcpyAsync of the plan of the experts");
  }
  template <class T>
  T* as() const {
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_->data());
  }

 private:
  const cuda::MemoryStream& stream_;
  std::unique_ptr<cuda::StreamMemory> memory_;
  std::size_t bytes_ = 0;
};

// The bytes of each buffer that one step of an expert uses.
struct StepSizes {
  int rows;
  std::size_t scales, decoded, in, partials, gate_up, activated;

  explicit StepSizes(const ExpertsOfRank& of) : rows(rows_at_once(of.layer.hidden, of.layer.largest_inter())) {
    const auto count = static_cast<std::size_t>(rows);
    const auto hidden = static_cast<std::size_t>(of.layer.hidden);
    const auto inter = static_cast<std::size_t>(padded_inter(of.layer.largest_inter()));
    scales = count * static_cast<std::size_t>(of.layout.scales_per_row) * size_of(of.layout.scale_dtype);
    decoded = count * hidden * sizeof(float);
    in = count * hidden * sizeof(Bf16);
    partials =
        static_cast<std::size_t>(partial_values(of.layer.hidden, of.layer.largest_inter(), rows)) * sizeof(float);
    gate_up = count * 2 * inter * sizeof(float);
    activated = count * inter * sizeof(Bf16);
  }
  std::uint64_t total() const { return scales + decoded + in + partials + gate_up + activated; }
};

std::size_t result_bytes(const ExpertsOfRank& of) {
  return static_cast<std::size_t>(of.buffers.row_capacity()) * static_cast<std::size_t>(of.layer.hidden) * sizeof(Bf16);
}

// The tensors of the rank's calls have room for the results, too, which these experts keep elsewhere.
void require_device_memory(const ExpertsOfRank& of) {
  std::size_t left = 0, total = 0;
  cuda_check(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
  const std::uint64_t weights = DeviceWeights::bytes(of);
  const std::uint64_t scratch = StepSizes(of).total() + CublasProducts::kWorkspaceBytes;
  const std::uint64_t tensors = cuda::HostTensors::most_bytes(of.plan.shape, of.layout, of.options.rows);
  if (weights + scratch + tensors > left)
    throw Error(ErrorKind::system,
                fmt::format("the weights need {}, the products {} and the rank's tensors {}, and {} are available: "
                            "take more ranks, or --experts-on cpu",
                            human_bytes(weights), human_bytes(scratch), human_bytes(tensors), human_bytes(left)));
}

class CudaExperts final : public Experts {
 public:
  // The rank's device is current.
  explicit CudaExperts(const ExpertsOfRank& of)
      : of_(of),
        sizes_(of),
        products_(stream_),
        weights_(of, stream_),
        scales_(stream_, sizes_.scales),
        decoded_(stream_, sizes_.decoded),
        in_(stream_, sizes_.in),
        partials_(stream_, sizes_.partials),
        gate_up_(stream_, sizes_.gate_up),
        activated_(stream_, sizes_.activated),
        combined_(stream_, std::max<std::size_t>(result_bytes(of), 1)) {
    cuda_check(cudaMemsetAsync(combined_.as<void>(), 0, result_bytes(of), stream_.get()), "cudaMemsetAsync");
    stream_.wait();
  }

  void take() override { of_.calls.take_routing(); }

  std::int64_t run() override;

  ConstTensor results() override {
    return {
        combined_.as<void>(), DType::bf16, {of_.buffers.row_capacity(), of_.layer.hidden}, Device::cuda(of_.device)};
  }

 private:
  bool by_source() const { return of_.options.rows == RowOrder::by_source; }
  ExpertPlan make_plan() const;
  void copy_in(const ExpertPlan& plan);
  void run_step(const ExpertStep& step, std::size_t number);
  void decode(const ExpertStep& step);
  void activate(const DeviceMatrices& matrices, int count, std::size_t number);
  // out[count, columns] = in[count, depth] · matrix[columns, depth]^T; float32, or rounded to bf16.
  void multiply(const Bf16* in, const Bf16* matrix, const Product& whole, SumParams out, const ExpertStep& step,
                const char* name);

  const ExpertsOfRank of_;
  const StepSizes sizes_;
  const cuda::MemoryStream stream_;
  const CublasProducts products_;
  const DeviceWeights weights_;
  Room scales_, decoded_, in_, partials_, gate_up_, activated_;  // of one step
  Room combined_;                                                // the rows of combine
  Room results_{stream_};                                        // by_source: the rows of the experts
  Room rows_{stream_}, counts_{stream_}, lines_{stream_};        // the plan
};

ExpertPlan CudaExperts::make_plan() const {
  if (by_source()) return plan_by_source(of_.buffers.row_topk_ids(), of_.layer.top_k, of_.layout.groups, sizes_.rows);
  std::vector<TokenSpan> groups;
  for (int group = 0; group < of_.layout.groups; ++group) groups.push_back(of_.buffers.rows_of_group(group));
  return plan_by_expert(groups, sizes_.rows);
}

// swiglu reads how many rows there are from memory of the device: {0, count} for each step.
void CudaExperts::copy_in(const ExpertPlan& plan) {
  std::vector<std::uint32_t> counts;
  for (const ExpertStep& step : plan.steps) {
    counts.push_back(0);
    counts.push_back(static_cast<std::uint32_t>(step.count));
  }
  rows_.copy_in(std::span<const std::uint32_t>(plan.rows));
  counts_.copy_in(std::span<const std::uint32_t>(counts));
  lines_.copy_in(std::span<const std::int32_t>(plan.results));
  if (by_source()) results_.reserve(plan.rows.size() * static_cast<std::size_t>(of_.layer.hidden) * sizeof(Bf16));
}

std::int64_t CudaExperts::run() {
  const cuda::DeviceScope scope(of_.device);
  const ExpertPlan plan = make_plan();
  const auto done = static_cast<std::int64_t>(plan.rows.size());
  copy_in(plan);
  for (std::size_t number = 0; number < plan.steps.size(); ++number) run_step(plan.steps[number], number);
  if (by_source()) {
    WeighParams sums;
    sums.results = results_.as<Bf16>();
    sums.lines = lines_.as<std::int32_t>();
    sums.weights = of_.calls.arrived().row_topk_weights.as<float>();
    sums.top_k = of_.layer.top_k;
    sums.rows = of_.buffers.num_rows();
    sums.hidden = of_.layer.hidden;
    sums.to = combined_.as<Bf16>();
    weigh_results(sums, stream_.get());
  }
  stream_.wait();
  if (of_.progress) of_.progress(done);
  return done;
}

void CudaExperts::run_step(const ExpertStep& step, std::size_t number) {
  const DeviceMatrices& matrices = weights_.of_group(step.group);
  const int hidden = of_.layer.hidden, count = step.count;
  decode(step);
  SumParams gate_up;
  gate_up.to_f32 = gate_up_.as<float>();
  multiply(in_.as<Bf16>(), matrices.gate_up, {count, 2 * matrices.inter, hidden}, gate_up, step, "gate_up");
  activate(matrices, count, number);
  SumParams down;
  down.to_bf16 = (by_source() ? results_ : combined_).as<Bf16>() + step.result * hidden;
  multiply(activated_.as<Bf16>(), matrices.down, {count, hidden, matrices.inter}, down, step, "down");
}

// Rows in float32, as the library decodes them, then in bf16.
void CudaExperts::decode(const ExpertStep& step) {
  const DispatchOutput& arrived = of_.calls.arrived();
  DecodeParams rows;
  rows.payload = arrived.payload.as<std::byte>();
  rows.row_bytes = of_.layout.payload_row_bytes;
  rows.scales = of_.buffers.scales_of_group(step.group, arrived.scales.as<std::byte>());
  rows.rows = rows_.as<std::uint32_t>() + step.first;
  rows.count = step.count;
  rows.hidden = of_.layer.hidden;
  rows.input_scale = of_.options.input_scale;
  rows.row_scales = scales_.as<std::byte>();
  rows.decoded = decoded_.as<float>();
  decode_rows(of_.options.format.name(), rows, stream_.get());
  SumParams rounding;
  rounding.from = rows.decoded;
  rounding.from_stride = rounding.to_stride = rows.hidden;
  rounding.rows = rows.count;
  rounding.columns = rows.hidden;
  rounding.to_bf16 = in_.as<Bf16>();
  sum_partials(rounding, stream_.get());
}

void CudaExperts::activate(const DeviceMatrices& matrices, int count, std::size_t number) {
  const Device device = Device::cuda(of_.device);
  SwigluInput in;
  in.rows = ConstTensor(gate_up_.as<void>(), DType::f32, {count, 2 * matrices.inter}, device);
  in.row_offsets = ConstTensor(counts_.as<std::uint32_t>() + 2 * number, DType::u32, {2}, device);
  SwigluOutput out;
  out.payload = Tensor(activated_.as<void>(), DType::bf16, {count, matrices.inter}, device);
  cuda_swiglu(format_named("bf16"), in, out, {}, {.stream = stream_.get()});
}

void CudaExperts::multiply(const Bf16* in, const Bf16* matrix, const Product& whole, SumParams out,
                           const ExpertStep& step, const char* name) {
  const ProductOperands operands{in, whole.depth, matrix, whole.depth, partials_.as<float>()};
  for (const Product& product : products_of(whole.rows, whole.columns, whole.depth))
    products_.run(product, operands, fmt::format("{} of local expert {}", name, step.group));
  out.from = operands.partials;
  out.from_stride = out.to_stride = whole.columns;
  out.apart = std::int64_t{whole.rows} * whole.columns;
  out.partials = num_partials(whole.depth);
  out.rows = whole.rows;
  out.columns = whole.columns;
  sum_partials(out, stream_.get());
}

// The experts of a rank, whose errors name it.
class NamedExperts final : public Experts {
 public:
  explicit NamedExperts(const ExpertsOfRank& of) : rank_(of.rank), device_(of.device) {
    named([&] {
      const cuda::DeviceScope scope(device_);
      require_device_memory(of);
      load_expert_kernels(of.options.format.name());
      load_cuda_swiglu(format_named("bf16"));
      experts_ = std::make_unique<CudaExperts>(of);
    });
  }
  ~NamedExperts() override {
    const cuda::DeviceScope scope(device_);
    experts_.reset();
  }
  NamedExperts(const NamedExperts&) = delete;
  NamedExperts& operator=(const NamedExperts&) = delete;

  void take() override { experts_->take(); }
  std::int64_t run() override {
    std::int64_t done = 0;
    named([&] { done = experts_->run(); });
    return done;
  }
  ConstTensor results() override { return experts_->results(); }

 private:
  template <class Work>
  void named(const Work& work) const {
    try {
      work();
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("rank {}: experts on GPU {}: {}", rank_, device_, error.what()));
    }
  }

  int rank_;
  int device_;
  std::unique_ptr<CudaExperts> experts_;
};

}  // namespace

std::unique_ptr<Experts> make_cuda_experts(const ExpertsOfRank& of) { return std::make_unique<NamedExperts>(of); }

}  // namespace ferry::app
