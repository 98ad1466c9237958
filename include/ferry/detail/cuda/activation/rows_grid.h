// Where the kernels of a call on rows go, and what the calls on rows have in common as they launch them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ferry::cuda {

struct RowsGrid {
  int multiprocessors = 0;
  int max_blocks = 0;      // 0: no limit
  bool dependent = false;  // may start while the kernel before it ends
  cudaStream_t stream = nullptr;
};
RowsGrid rows_grid(int device, int max_blocks, cudaStream_t stream);

// Throws Error(unsupported) where a build has no kernels for the GPU, and Error(system) for any other error of CUDA's.
// `call` is for the text.
void require_image(const char* call, cudaError_t status, const char* cuda_call);

// What CUDA is told of the launch of a kernel on rows. `config` points into the object, so it is not copied.
struct RowsLaunch {
  RowsLaunch(const RowsGrid& grid, int blocks, int threads, std::size_t shared_bytes);
  RowsLaunch(const RowsLaunch&) = delete;
  RowsLaunch& operator=(const RowsLaunch&) = delete;

  cudaLaunchAttribute dependent{};
  cudaLaunchConfig_t config{};
};

}  // namespace ferry::cuda
