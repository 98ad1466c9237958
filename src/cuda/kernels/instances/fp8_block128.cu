#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

DispatchLauncher fp8_block128_launcher() { return dispatch_launcher<Fp8Block128, PeerFabric>(); }

}  // namespace ferry::cuda
