#include "cuda/launch.cuh"
#include "cuda/nvshmem/nvshmem_fabric.cuh"
#include "cuda/nvshmem/nvshmem_launch.h"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_mxfp8_launcher() { return dispatch_launcher<Mxfp8, NvshmemFabric>(); }

}  // namespace ferry::cuda
