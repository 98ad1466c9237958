// Loads a kernel before its first launch.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

// The driver's cuFuncLoad; null where the driver is older than CUDA 12.4. It is looked up at first use, so programs
// start on machines without a driver.
inline auto find_function_loader() {
  using Load = CUresult (*)(CUfunction);
  constexpr unsigned kSince = 12040;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuFuncLoad", &found, kSince, cudaEnableDefault, &result);
  if (status != cudaSuccess) cudaGetLastError();
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Load>(found) : Load{nullptr};
}

// Loads the kernel on the current device. CUDA loads a kernel at its first launch otherwise (lazy loading), and waits
// there until the device is idle. A kernel that runs meanwhile may wait for a peer, which cannot launch its own kernel
// until then. Must not be called while a stream is captured.
inline void load_kernel(const void* kernel) {
  static const auto load = find_function_loader();
  cudaFuncAttributes attributes{};
  cuda_check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");  // loads it, as an older driver may
  if (load == nullptr) return;
  cudaFunction_t function = nullptr;
  cuda_check(cudaGetFuncBySymbol(&function, kernel), "cudaGetFuncBySymbol");
  cuda_check(load(function) == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, "cuFuncLoad");
}

}  // namespace ferry::cuda
