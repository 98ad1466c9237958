#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher bf16_launcher() { return dispatch_launcher<Bf16, PeerFabric>(); }

}  // namespace ferry::cuda
