#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

DispatchLauncher mxfp6_e3m2_launcher() { return dispatch_launcher<Mxfp6E3m2, PeerFabric>(); }

}  // namespace ferry::cuda
