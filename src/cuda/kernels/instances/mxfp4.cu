#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

DispatchLauncher mxfp4_launcher() { return dispatch_launcher<Mxfp4, PeerFabric>(); }

}  // namespace ferry::cuda
