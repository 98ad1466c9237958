#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

DispatchLauncher mxfp8_launcher() { return dispatch_launcher<Mxfp8, PeerFabric>(); }

}  // namespace ferry::cuda
