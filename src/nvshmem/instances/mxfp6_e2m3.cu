#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/nvshmem/nvshmem_fabric.cuh"
#include "nvshmem/nvshmem_launch.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_mxfp6_e2m3_launcher() { return dispatch_launcher<Mxfp6E2m3, NvshmemFabric>(); }

}  // namespace ferry::cuda
