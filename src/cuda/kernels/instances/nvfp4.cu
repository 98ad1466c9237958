#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

DispatchLauncher nvfp4_launcher() { return dispatch_launcher<Nvfp4, PeerFabric>(); }

}  // namespace ferry::cuda
