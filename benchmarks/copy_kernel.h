// A plain copy by one kernel: what device memory gives to a kernel that only moves bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

// `bytes` is a multiple of 16, and so are the addresses.
void launch_copy(void* to, const void* from, std::size_t bytes, int multiprocessors, cudaStream_t stream);
