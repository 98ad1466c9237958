// Errors of the CUDA runtime as Ferry's errors.
#pragma once

#include <cuda_runtime_api.h>

namespace ferry::cuda {

// Throws Error(system) with the call and CUDA's text where `status` is an error.
void cuda_check(cudaError_t status, const char* call);

}  // namespace ferry::cuda
