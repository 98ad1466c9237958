#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/nvshmem/nvshmem_fabric.cuh"
#include "nvshmem/nvshmem_launch.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_mxfp6_e3m2_launcher() { return dispatch_launcher<Mxfp6E3m2, NvshmemFabric>(); }

}  // namespace ferry::cuda
