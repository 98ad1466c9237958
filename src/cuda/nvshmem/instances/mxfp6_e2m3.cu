#include "cuda/launch.cuh"
#include "cuda/nvshmem/nvshmem_fabric.cuh"
#include "cuda/nvshmem/nvshmem_launch.h"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_mxfp6_e2m3_launcher() { return dispatch_launcher<Mxfp6E2m3, NvshmemFabric>(); }

}  // namespace ferry::cuda
