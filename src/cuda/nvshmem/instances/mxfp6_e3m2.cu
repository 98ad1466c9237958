#include "cuda/launch.cuh"
#include "cuda/nvshmem/nvshmem_fabric.cuh"
#include "cuda/nvshmem/nvshmem_launch.h"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_mxfp6_e3m2_launcher() { return dispatch_launcher<Mxfp6E3m2, NvshmemFabric>(); }

}  // namespace ferry::cuda
