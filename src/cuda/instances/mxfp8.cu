#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher mxfp8_launcher() { return dispatch_launcher<Mxfp8, PeerFabric>(); }

}  // namespace ferry::cuda
