// ptx_launch.cuh for emulated GPUs.
#pragma once

#include "support/emulated_gpu/device_calls.h"

namespace ferry::ptx {

inline void await_earlier_kernels() { emulated::await_earlier_kernels(); }
inline void let_next_kernel_launch() { emulated::let_next_kernel_launch(); }

}  // namespace ferry::ptx
