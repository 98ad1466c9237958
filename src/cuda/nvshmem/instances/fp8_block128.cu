#include "cuda/launch.cuh"
#include "cuda/nvshmem/nvshmem_fabric.cuh"
#include "cuda/nvshmem/nvshmem_launch.h"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher nvshmem_fp8_block128_launcher() { return dispatch_launcher<Fp8Block128, NvshmemFabric>(); }

}  // namespace ferry::cuda
