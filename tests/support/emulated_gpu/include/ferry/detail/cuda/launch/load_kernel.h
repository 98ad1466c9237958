// In place of ferry/detail/cuda/launch/load_kernel.h: the emulated runtime refuses a launch of a kernel that was not
// loaded.
#pragma once

#include <cuda_runtime_api.h>

namespace ferry::cuda {

inline void load_kernel(const void* kernel) { emulated_load(kernel); }

}  // namespace ferry::cuda
