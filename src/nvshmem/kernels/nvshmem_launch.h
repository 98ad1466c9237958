// The kernels over NvshmemFabric, for worlds of several nodes. Built with relocatable device code.
#pragma once

#include "ferry/detail/cuda/launch/launch.h"

namespace ferry::cuda {

Launchers nvshmem_launchers();

}  // namespace ferry::cuda
