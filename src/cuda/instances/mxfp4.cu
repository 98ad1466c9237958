#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher mxfp4_launcher() { return dispatch_launcher<Mxfp4, PeerFabric>(); }

}  // namespace ferry::cuda
