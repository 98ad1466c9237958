// Plain copies inside a device: what its memory gives to those that only move bytes. Several ways, of which whoever
// measures takes the fastest.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ferry::app {

struct CopyMethod {
  const char* name;
  int blocks;  // of the kernel for each multiprocessor; 0: the driver copies
};
inline constexpr CopyMethod kCopyMethods[] = {{"cudaMemcpyAsync", 0},
                                              {"kernel, 2 blocks per multiprocessor", 2},
                                              {"kernel, 4 blocks per multiprocessor", 4},
                                              {"kernel, 8 blocks per multiprocessor", 8},
                                              {"kernel, 16 blocks per multiprocessor", 16},
                                              {"kernel, 32 blocks per multiprocessor", 32},
                                              {"kernel, 64 blocks per multiprocessor", 64},
                                              {"kernel, 128 blocks per multiprocessor", 128},
                                              {"kernel, 512 blocks per multiprocessor", 512}};

// Sizes and addresses are multiples of 16.
cudaError_t launch_copy(const CopyMethod& method, void* to, const void* from, std::size_t bytes, int multiprocessors,
                        cudaStream_t stream);

// The same kernel, 8 blocks per multiprocessor: reads `read` bytes and writes the first `written` of them, at most as
// many. In a chain of kernels it may start while the one before it ends.
cudaError_t launch_read_and_write(void* to, const void* from, std::size_t read, std::size_t written,
                                  int multiprocessors, cudaStream_t stream);

}  // namespace ferry::app
