// The launchers of the kernels over a fabric; instances/<format>.cu makes those of one format.
#pragma once

#include <algorithm>
#include <mutex>

#include "ferry/detail/cuda/kernels/combine_kernel.cuh"
#include "ferry/detail/cuda/kernels/dispatch_kernel.cuh"
#include "ferry/detail/cuda/kernels/launch.h"

namespace ferry::cuda {

// The limit is the kernel's on this device, whoever launches it: other exchanges may need more. So it only grows.
inline void raise_shared_limit(const void* kernel, std::size_t shared_bytes) {
  static std::mutex guard;
  const std::lock_guard lock(guard);
  cudaFuncAttributes has{};
  cuda_check(cudaFuncGetAttributes(&has, kernel), "cudaFuncGetAttributes");
  if (has.maxDynamicSharedSizeBytes >= static_cast<int>(shared_bytes)) return;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
             "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
}

// Whether a block of it may have so much besides what the kernel itself names, as one with a hook may.
inline bool may_have_shared(const void* kernel, std::size_t shared_bytes) {
  int device = 0;
  int most = 0;
  cudaFuncAttributes has{};
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  cuda_check(cudaFuncGetAttributes(&has, kernel), "cudaFuncGetAttributes");
  return has.sharedSizeBytes + shared_bytes <= static_cast<std::size_t>(most);
}

// Blocks of it that a multiprocessor holds. Loads the kernel.
template <class Kernel>
int prepare_kernel(Kernel kernel, int threads, std::size_t shared_bytes) {
  int blocks = 0;
  raise_shared_limit(reinterpret_cast<const void*>(kernel), shared_bytes);
  cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks;
}

// I21. `pdl`: the kernel may be launched while the one before it in the stream still runs; it waits for its end
// before it touches memory (ptx::await_earlier_kernels). `blocks_per_cta`: blocks of a thread block.
template <class Params>
void launch(void (*kernel)(Params), const Params& params, int blocks, bool pdl, std::size_t shared_bytes,
            cudaStream_t stream, int blocks_per_cta = 1) {
  cudaLaunchAttribute beside{};
  beside.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  beside.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks / blocks_per_cta));
  config.blockDim = dim3(static_cast<unsigned>(kThreads), static_cast<unsigned>(blocks_per_cta));
  config.dynamicSmemBytes = shared_bytes * static_cast<std::size_t>(blocks_per_cta);
  config.stream = stream;
  config.attrs = &beside;
  config.numAttrs = pdl ? 1 : 0;
  cuda_check(cudaLaunchKernelEx(&config, kernel, params), "cudaLaunchKernelEx");
}

template <TokenFormat Fmt, Fabric F>
DispatchLauncher dispatch_launcher() {
  return {Fmt{}.name(),
          [](int threads, std::size_t shared_bytes) {
            return prepare_kernel(&dispatch_kernel<Fmt, F, false>, threads, shared_bytes);
          },
          [](int threads, std::size_t shared_bytes) {
            if constexpr (F::kHasRemoteRanks)
              return false;
            else {
              const auto kernel = &dispatch_kernel<Fmt, F, true>;
              return may_have_shared(reinterpret_cast<const void*>(kernel), 2 * shared_bytes) &&
                     prepare_kernel(kernel, 2 * threads, 2 * shared_bytes) != 0;
            }
          },
          [](const DispatchParams& params, const DispatchPolicy& policy, cudaStream_t stream) {
            const auto start = [&](auto* kernel) {
              launch(kernel, params, policy.blocks, policy.pdl, params.block_bytes, stream, policy.blocks_per_cta);
            };
            if constexpr (!F::kHasRemoteRanks)
              if (policy.blocks_per_cta == 2) return start(&dispatch_kernel<Fmt, F, true>);
            start(&dispatch_kernel<Fmt, F, false>);
          }};
}

template <Fabric F>
CombineLauncher combine_launcher() {
  return {[](int threads, std::size_t shared_bytes, std::size_t ring_bytes) {
            const int blocks = prepare_kernel(&combine_kernel<F, false>, threads, shared_bytes);
            if constexpr (!F::kHasRemoteRanks)
              if (ring_bytes != 0)
                return std::min(blocks, prepare_kernel(&combine_kernel<F, true>, threads, ring_bytes));
            return blocks;
          },
          [](const CombineParams& params, const CombinePolicy& policy, std::size_t shared_bytes, cudaStream_t stream) {
            if constexpr (!F::kHasRemoteRanks)
              if (policy.roles.pipelined)
                return launch(&combine_kernel<F, true>, params, policy.blocks, policy.pdl, shared_bytes, stream);
            launch(&combine_kernel<F, false>, params, policy.blocks, policy.pdl, shared_bytes, stream);
          },
          !F::kHasRemoteRanks};
}

// PeerFabric's, one per format, each in a file of its own so that they build side by side.
DispatchLauncher bf16_launcher();
DispatchLauncher fp8_block128_launcher();
DispatchLauncher fp8_block128_ue8m0_launcher();
DispatchLauncher mxfp8_launcher();
DispatchLauncher mxfp6_e2m3_launcher();
DispatchLauncher mxfp6_e3m2_launcher();
DispatchLauncher mxfp4_launcher();
DispatchLauncher nvfp4_launcher();

}  // namespace ferry::cuda
