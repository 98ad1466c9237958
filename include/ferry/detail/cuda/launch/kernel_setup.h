// What a kernel needs before its first launch on a device: that it is loaded, its limit of shared memory, and how many
// of its blocks fit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>

#include "ferry/detail/cuda/launch/load_kernel.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

// Raises the kernel's limit of dynamic shared memory on the current device to `shared_bytes`. The limit belongs to the
// kernel, whoever launches it, and other exchanges may need more: so it only grows.
inline void raise_shared_limit(const void* kernel, std::size_t shared_bytes) {
  static std::mutex guard;
  const std::lock_guard lock(guard);
  cudaFuncAttributes has{};
  cuda_check(cudaFuncGetAttributes(&has, kernel), "cudaFuncGetAttributes");
  if (has.maxDynamicSharedSizeBytes >= static_cast<int>(shared_bytes)) return;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
             "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
}

// Whether a block of the kernel may have `shared_bytes` besides its static shared memory, which a hook may have too.
inline bool may_have_shared(const void* kernel, std::size_t shared_bytes) {
  int device = 0;
  int most = 0;
  cudaFuncAttributes has{};
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  cuda_check(cudaFuncGetAttributes(&has, kernel), "cudaFuncGetAttributes");
  return has.sharedSizeBytes + shared_bytes <= static_cast<std::size_t>(most);
}

// Raises the kernel's limit. Returns how many of its blocks a multiprocessor holds at once.
template <class Kernel>
int blocks_per_multiprocessor(Kernel kernel, int threads, std::size_t shared_bytes) {
  int blocks = 0;
  raise_shared_limit(reinterpret_cast<const void*>(kernel), shared_bytes);
  cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks;
}

// The same, and loads the kernel.
template <class Kernel>
int prepare_kernel(Kernel kernel, int threads, std::size_t shared_bytes) {
  load_kernel(reinterpret_cast<const void*>(kernel));
  return blocks_per_multiprocessor(kernel, threads, shared_bytes);
}

}  // namespace ferry::cuda
