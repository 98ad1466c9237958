#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/nvshmem/nvshmem_fabric.cuh"
#include "nvshmem/nvshmem_launch.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_fp8_block128_ue8m0_launcher() { return dispatch_launcher<Fp8Block128Ue8m0, NvshmemFabric>(); }

}  // namespace ferry::cuda
