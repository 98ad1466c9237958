#include "tool/layer/cuda/device_weights.h"

#include <algorithm>

#include "ferry/detail/cuda/state/cuda_check.h"
#include "tool/layer/base/layer_plan.h"
#include "tool/layer/cuda/expert_kernels.h"
#include "tool/layer/experts/expert_plan.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;

std::size_t half_values(int hidden, int inter) {  // of the gate, of the up or of the down matrix
  return static_cast<std::size_t>(hidden) * static_cast<std::size_t>(padded_inter(inter));
}

std::size_t all_bytes(const ExpertsOfRank& of) {
  std::size_t values = 0;
  for (int group = 0; group < of.layout.groups; ++group)
    values += 3 * half_values(of.layer.hidden, expert_of_group(of, group).inter);
  return values * sizeof(Bf16);
}

// float32 values that are copied at a time: whole lines of a matrix.
std::size_t staged_values(const ExpertsOfRank& of) {
  constexpr std::size_t kUsual = std::size_t{16} << 20;
  return std::max(kUsual, static_cast<std::size_t>(std::max(of.layer.hidden, of.layer.largest_inter())));
}

}  // namespace

class DeviceWeights::Loader {
 public:
  Loader(const ExpertsOfRank& of, const cuda::MemoryStream& stream)
      : stream_(stream.get()), values_(staged_values(of)), staged_(stream, values_ * sizeof(float)) {}

  // `from`: float32 [rows, columns] of the host.
  void load(const float* from, std::int64_t rows, int columns, Bf16* to, std::int64_t to_stride) const {
    const auto most = static_cast<std::int64_t>(values_) / columns;
    for (std::int64_t row = 0; row < rows; row += most) {
      SumParams rounding;
      rounding.rows = std::min(most, rows - row);
      rounding.columns = columns;
      rounding.from = reinterpret_cast<const float*>(staged_.data());
      rounding.from_stride = columns;
      rounding.to_bf16 = to + row * to_stride;
      rounding.to_stride = to_stride;
      const auto bytes = static_cast<std::size_t>(rounding.rows) * static_cast<std::size_t>(columns) * sizeof(float);
      cuda_check(cudaMemcpyAsync(staged_.data(), from + row * columns, bytes, cudaMemcpyHostToDevice, stream_),
                 "cudaMemcpyAsync of weights");
      sum_partials(rounding, stream_);
    }
  }

 private:
  cudaStream_t stream_;
  std::size_t values_;
  cuda::StreamMemory staged_;
};

DeviceWeights::DeviceWeights(const ExpertsOfRank& of, const cuda::MemoryStream& stream)
    : memory_(stream, std::max<std::size_t>(all_bytes(of), 1)) {
  cuda_check(cudaMemsetAsync(memory_.data(), 0, all_bytes(of), stream.get()), "cudaMemsetAsync");
  const Loader loader(of, stream);
  const int hidden = of.layer.hidden;
  auto* next = reinterpret_cast<Bf16*>(memory_.data());
  for (int group = 0; group < of.layout.groups; ++group) {
    const ExpertWeights weights = expert_of_group(of, group);
    const std::size_t half = half_values(hidden, weights.inter);
    const int padded = padded_inter(weights.inter);
    loader.load(weights.gate_up, weights.inter, hidden, next, hidden);
    loader.load(weights.gate_up + std::int64_t{weights.inter} * hidden, weights.inter, hidden, next + half, hidden);
    loader.load(weights.down, hidden, weights.inter, next + 2 * half, padded);
    matrices_.push_back({next, next + 2 * half, padded});
    next += 3 * half;
  }
  stream.wait();  // the host's arrays are not needed from here on, and the staged ones are free
}

std::uint64_t DeviceWeights::bytes(const ExpertsOfRank& of) {
  return all_bytes(of) + staged_values(of) * sizeof(float);
}

}  // namespace ferry::app
