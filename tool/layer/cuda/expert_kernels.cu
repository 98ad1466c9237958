#include "tool/layer/cuda/expert_kernels.h"

#include <algorithm>
#include <string>

#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/cuda/launch/load_kernel.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/formats/rounded.h"

namespace ferry::app {
namespace {

constexpr int kExpertThreads = 256;  // of a block
constexpr std::int64_t kMostBlocks = 4096;

__device__ std::int64_t own_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * kExpertThreads + static_cast<std::int64_t>(threadIdx.x);
}
__device__ std::int64_t all_threads() { return static_cast<std::int64_t>(gridDim.x) * kExpertThreads; }

__device__ Bf16 rounded_to_bf16(float value) { return static_cast<Bf16>(codec::bf16_of(codec::bits_of(value))); }

// The scales of a row go into column order first, as decode takes them.
template <class F>
__device__ const std::byte* gather_scales(const cuda::WarpGroup& warp, const DecodeParams& params, std::int64_t line) {
  constexpr int kBytes = F::scale_bytes();
  const ScaleTensor& tensor = params.scales.tensor;
  std::byte* const scales = params.row_scales + line * tensor.scales_per_row * kBytes;
  const ScaleRow at = params.scales.at(params.rows[line]);
  for (int column = warp.thread(); column < tensor.scales_per_row; column += warp.size())
    for (int byte = 0; byte < kBytes; ++byte)
      scales[column * kBytes + byte] = tensor.base[scale_index(tensor, at, column) * kBytes + byte];
  warp.sync();
  return scales;
}

// A warp for each row.
template <class F>
__global__ void decode_kernel(const __grid_constant__ DecodeParams params) {
  const cuda::WarpGroup warp;
  for (std::int64_t line = own_thread() / warp.size(); line < params.count; line += all_threads() / warp.size()) {
    const std::byte* const payload = params.payload + std::int64_t{params.rows[line]} * params.row_bytes;
    F{}.decode(warp, payload, gather_scales<F>(warp, params, line), params.hidden, params.input_scale,
               params.decoded + line * params.hidden);
  }
}

__global__ void sum_kernel(const __grid_constant__ SumParams params) {
  for (std::int64_t at = own_thread(); at < params.rows * params.columns; at += all_threads()) {
    const std::int64_t row = at / params.columns, column = at % params.columns;
    const float* const from = params.from + row * params.from_stride + column;
    float sum = from[0];
    for (int partial = 1; partial < params.partials; ++partial)
      sum = codec::add_rounded(sum, from[partial * params.apart]);
    if (params.to_f32 != nullptr)
      params.to_f32[row * params.to_stride + column] = sum;
    else
      params.to_bf16[row * params.to_stride + column] = rounded_to_bf16(sum);
  }
}

__global__ void weigh_kernel(const __grid_constant__ WeighParams params) {
  for (std::int64_t at = own_thread(); at < params.rows * params.hidden; at += all_threads()) {
    const std::int64_t row = at / params.hidden, column = at % params.hidden;
    float sum = 0;
    for (std::int64_t entry = row * params.top_k; entry < (row + 1) * params.top_k; ++entry) {
      if (params.lines[entry] < 0) continue;
      const Bf16 result = params.results[std::int64_t{params.lines[entry]} * params.hidden + column];
      const float value = codec::float_of(static_cast<std::uint32_t>(result) << 16);
      sum = codec::add_rounded(sum, codec::multiply_rounded(params.weights[entry], value));
    }
    params.to[at] = rounded_to_bf16(sum);
  }
}

template <class Params>
void launch_threads(void (*kernel)(Params), const Params& params, std::int64_t threads, cudaStream_t stream) {
  if (threads == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min((threads + kExpertThreads - 1) / kExpertThreads, kMostBlocks)));
  config.blockDim = dim3(kExpertThreads);
  config.stream = stream;
  cuda::cuda_check(cudaLaunchKernelEx(&config, kernel, params), "cudaLaunchKernelEx of a kernel of the experts");
}

using DecodeKernel = void (*)(DecodeParams);

DecodeKernel decode_kernel_of(std::string_view format) {
  static const auto kKernels =
      Formats::table([]<class F>(std::type_identity<F>) -> DecodeKernel { return &decode_kernel<F>; });
  const DecodeKernel* const kernel = find_format(kKernels, format);
  if (kernel == nullptr)
    throw Error(ErrorKind::unsupported, "--experts-on gpu: rows in " + std::string(format) +
                                            " cannot be decoded on a GPU, which has the library's formats; take "
                                            "--experts-on cpu");
  return *kernel;
}

}  // namespace

void load_expert_kernels(std::string_view format) {
  cuda::load_kernel(reinterpret_cast<const void*>(decode_kernel_of(format)));
  cuda::load_kernel(reinterpret_cast<const void*>(&sum_kernel));
  cuda::load_kernel(reinterpret_cast<const void*>(&weigh_kernel));
}

void decode_rows(std::string_view format, const DecodeParams& params, cudaStream_t stream) {
  launch_threads(decode_kernel_of(format), params, std::int64_t{params.count} * cuda::WarpGroup::kWidth, stream);
}
void sum_partials(const SumParams& params, cudaStream_t stream) {
  launch_threads(&sum_kernel, params, params.rows * params.columns, stream);
}
void weigh_results(const WeighParams& params, cudaStream_t stream) {
  launch_threads(&weigh_kernel, params, params.rows * params.hidden, stream);
}

}  // namespace ferry::app
