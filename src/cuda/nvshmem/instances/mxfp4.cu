#include "cuda/launch.cuh"
#include "cuda/nvshmem/nvshmem_fabric.cuh"
#include "cuda/nvshmem/nvshmem_launch.h"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_mxfp4_launcher() { return dispatch_launcher<Mxfp4, NvshmemFabric>(); }

}  // namespace ferry::cuda
