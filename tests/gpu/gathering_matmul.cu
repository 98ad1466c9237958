#include "gathering_matmul.h"

#include "ferry/detail/cuda/launch/load_kernel.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/formats/row_sum.h"

namespace ferry::test {
namespace {

constexpr unsigned kBlocks = 4, kBlockThreads = 64;

__device__ int group_of(const GatheringMatmul& p, std::uint32_t row) {
  int group = 0;
  while (p.row_offsets[group + 1] <= row) ++group;
  return group;
}

__global__ void gathering_matmul_kernel(const __grid_constant__ GatheringMatmul p) {
  const std::uint32_t rows = p.row_offsets[p.groups];
  const auto columns = static_cast<std::uint32_t>(p.columns);
  for (std::uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x; i < rows * columns; i += kBlocks * kBlockThreads) {
    const std::uint32_t row = i / columns;
    const auto column = static_cast<int>(i % columns);
    const std::int32_t slot = p.gather[row];
    const int group = group_of(p, row);
    float sum = 0;
    for (int h = 0; slot >= 0 && h < p.hidden; ++h)
      sum = fmaf(bf16_to_float(p.slots[slot * p.slot_stride + h]), matmul_weight(group, h, column), sum);
    p.out[i] = sum;
  }
}

__global__ void delay_kernel(const __grid_constant__ int microseconds) {
  for (int i = 0; i < microseconds; ++i) __nanosleep(1000);
}

template <class Params>
void launch(void (*kernel)(Params), const Params& params, unsigned blocks, unsigned threads, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = stream;
  cuda::cuda_check(cudaLaunchKernelEx(&config, kernel, params), "cudaLaunchKernelEx");
}

}  // namespace

void load_gathering_matmul() {
  cuda::load_kernel(reinterpret_cast<const void*>(&gathering_matmul_kernel));
  cuda::load_kernel(reinterpret_cast<const void*>(&delay_kernel));
}
void launch_gathering_matmul(const GatheringMatmul& matmul, cudaStream_t stream) {
  launch(&gathering_matmul_kernel, matmul, kBlocks, kBlockThreads, stream);
}
void launch_delay(int microseconds, cudaStream_t stream) { launch(&delay_kernel, microseconds, 1, 32, stream); }

}  // namespace ferry::test
