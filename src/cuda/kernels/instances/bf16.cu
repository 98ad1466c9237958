#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

DispatchLauncher bf16_launcher() { return dispatch_launcher<Bf16, PeerFabric>(); }

}  // namespace ferry::cuda
