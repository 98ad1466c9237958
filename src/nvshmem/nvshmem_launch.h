// The kernels over NvshmemFabric, for worlds of several nodes. Built with relocatable device code.
#pragma once

#include "ferry/detail/cuda/kernels/launch.h"

namespace ferry::cuda {

Launchers nvshmem_launchers();

// One per format, each in a file of its own.
DispatchLauncher nvshmem_bf16_launcher();
DispatchLauncher nvshmem_fp8_block128_launcher();
DispatchLauncher nvshmem_fp8_block128_ue8m0_launcher();
DispatchLauncher nvshmem_mxfp8_launcher();
DispatchLauncher nvshmem_mxfp6_e2m3_launcher();
DispatchLauncher nvshmem_mxfp6_e3m2_launcher();
DispatchLauncher nvshmem_mxfp4_launcher();
DispatchLauncher nvshmem_nvfp4_launcher();

}  // namespace ferry::cuda
