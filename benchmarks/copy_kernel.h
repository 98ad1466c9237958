// A plain copy by one kernel: what device memory gives to a kernel that only moves bytes, in a chain of kernels of
// which each may start while the one before it ends.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

// Sizes and addresses are multiples of 16.
void launch_copy(void* to, const void* from, std::size_t bytes, int multiprocessors, cudaStream_t stream);

// Reads `read` bytes and writes the first `written` of them, at most as many.
void launch_read_and_write(void* to, const void* from, std::size_t read, std::size_t written, int multiprocessors,
                           cudaStream_t stream);
