// The launcher of one format's dispatch kernel; instances/<format>.cu makes it.
#pragma once

#include "cuda/dispatch_kernel.cuh"
#include "cuda/launch.h"

namespace ferry::cuda {

template <class Kernel>
int prepare_kernel(Kernel kernel, int threads, std::size_t shared_bytes) {
  int blocks = 0;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
             "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
  cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks;
}

template <TokenFormat Fmt>
DispatchLauncher dispatch_launcher() {
  return {Fmt{}.name(),
          [](int threads, std::size_t shared_bytes) {
            return prepare_kernel(&dispatch_kernel<Fmt>, threads, shared_bytes);
          },
          [](const DispatchParams& params, const LaunchPolicy& policy, std::size_t shared_bytes, cudaStream_t stream) {
            dispatch_kernel<Fmt>
                <<<static_cast<unsigned>(policy.blocks), static_cast<unsigned>(policy.threads), shared_bytes, stream>>>(
                    params);
            cuda_check(cudaGetLastError(), "launch of the dispatch kernel");
          }};
}

// One per format, each in a file of its own so that they build side by side.
DispatchLauncher bf16_launcher();
DispatchLauncher fp8_block128_launcher();
DispatchLauncher fp8_block128_ue8m0_launcher();
DispatchLauncher mxfp8_launcher();
DispatchLauncher mxfp6_e2m3_launcher();
DispatchLauncher mxfp6_e3m2_launcher();
DispatchLauncher mxfp4_launcher();
DispatchLauncher nvfp4_launcher();

}  // namespace ferry::cuda
