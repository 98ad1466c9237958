#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher fp8_block128_ue8m0_launcher() { return dispatch_launcher<Fp8Block128Ue8m0, PeerFabric>(); }

}  // namespace ferry::cuda
