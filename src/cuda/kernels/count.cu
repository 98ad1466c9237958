// The kernels of a dispatch whose host asks what comes.
#include "ferry/detail/cuda/kernels/count_kernel.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"

namespace ferry::cuda {

static std::size_t count_bytes(const Plan& plan) {
  return sizeof(CountMemory) + static_cast<std::size_t>(host_count_words(plan)) * sizeof(std::uint32_t);
}

void prepare_counts(const Plan& plan) {
  prepare_kernel(&count_kernel, kThreads, count_bytes(plan));
  prepare_kernel(&excess_kernel, kExcessThreads, 0);
}

void launch_count(const CountParams& params, cudaStream_t stream) {
  launch(&count_kernel, params, {.shared_bytes = count_bytes(params.plan)}, stream);
}
void launch_excess(const ExcessParams& params, cudaStream_t stream) {
  launch(&excess_kernel, params, {.threads = kExcessThreads}, stream);
}

}  // namespace ferry::cuda
