// The table of SwiGLU kernels, and how one is put on a stream.
#include "ferry/detail/cuda/activation/swiglu_launch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"
#include "ferry/detail/cuda/kernels/launch.h"

namespace ferry::cuda {

const SwigluLauncher* find_swiglu_launcher(const char* format) {
  static const std::array<SwigluLauncher, 8> kLaunchers = {
      bf16_swiglu(),  fp8_block128_swiglu(), fp8_block128_ue8m0_swiglu(),
      mxfp8_swiglu(), mxfp6_e2m3_swiglu(),   mxfp6_e3m2_swiglu(),
      mxfp4_swiglu(), nvfp4_swiglu()};
  for (const SwigluLauncher& launcher : kLaunchers)
    if (std::strcmp(launcher.format, format) == 0) return &launcher;
  return nullptr;
}

void launch_swiglu(const SwigluLauncher& launcher, SwigluParams& params, bool interleaved, const SwigluGrid& grid) {
  const DType rows = params.work.dtype;
  const std::int64_t turns = (params.work.scales.row_capacity * params.lanes.divisor() + 31) / 32;
  std::int64_t blocks = std::int64_t{grid.multiprocessors} * launcher.blocks(rows);
  if (grid.max_blocks > 0) blocks = std::min<std::int64_t>(blocks, grid.max_blocks);
  blocks = std::clamp<std::int64_t>(turns, 1, blocks);
  params.early_turns = grid.multiprocessors * (kSwigluEarlyColumns / (launcher.columns * 32));
  const int threads = static_cast<int>(blocks) * kSwigluThreads;
  params.step_rows = threads / params.lanes.divisor();
  params.step_lanes = threads % params.lanes.divisor();

  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kSwigluThreads);
  config.stream = grid.stream;
  config.attrs = &dependent;
  config.numAttrs = grid.dependent ? 1 : 0;
  void* arguments[] = {&params};
  const cudaError_t status = cudaLaunchKernelExC(&config, launcher.kernel(rows, interleaved), arguments);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    throw Error(ErrorKind::unsupported,
                "swiglu: this build has no kernels for the GPU that holds rows; build Ferry with its architecture in "
                "CMAKE_CUDA_ARCHITECTURES");
  }
  cuda_check(status, "launch of the swiglu kernel");
}

}  // namespace ferry::cuda
