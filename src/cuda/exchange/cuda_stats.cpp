// CudaSteps: what an exchange has counted on its device.
#include <vector>

#include "cuda/exchange/cuda_steps.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

Stats CudaSteps::stats() const {
  const DeviceScope scope(device_.index);
  const auto ranks = static_cast<std::size_t>(plan_.shape.ranks);
  const auto experts = static_cast<std::size_t>(plan_.local_experts());
  const std::size_t groups = ranks * experts;
  std::vector<std::uint64_t> words(3 * ranks + formats_.size() * groups);
  DeviceState state;
  SideStream stream;
  cuda_check(cudaMemcpyAsync(words.data(), stats_.messages, words.size() * sizeof words[0], cudaMemcpyDeviceToHost,
                             stream.get()),
             "cudaMemcpyAsync");
  cuda_check(cudaMemcpyAsync(&state, links_.state, sizeof state, cudaMemcpyDeviceToHost, stream.get()),
             "cudaMemcpyAsync");
  stream.wait();

  Stats stats;
  stats.ranks = plan_.shape.ranks;
  stats.local_experts = plan_.local_experts();
  const auto at = [&](std::size_t index) { return words.begin() + static_cast<std::ptrdiff_t>(index); };
  stats.messages_sent.assign(at(0), at(ranks));
  stats.bytes_sent.assign(at(ranks), at(2 * ranks));
  stats.waited_ns.assign(at(2 * ranks), at(3 * ranks));
  stats.received.resize(groups);
  for (std::size_t i = 0; i < formats_.size() * groups; ++i) {
    const std::uint64_t rows = words[3 * ranks + i];
    stats.received[i % groups].tokens += rows;
    stats.received[i % groups].bytes += rows * row_bytes_[i / groups];
  }
  stats.non_finite_blocks = state.non_finite.raw;
  stats.dropped = state.dropped.raw;
  stats.dispatches = state.dispatches.raw;
  stats.combines = state.combines.raw;
  return stats;
}

}  // namespace ferry::cuda
