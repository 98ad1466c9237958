#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

DispatchLauncher mxfp6_e2m3_launcher() { return dispatch_launcher<Mxfp6E2m3, PeerFabric>(); }

}  // namespace ferry::cuda
