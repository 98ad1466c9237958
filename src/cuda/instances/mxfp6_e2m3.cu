#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher mxfp6_e2m3_launcher() { return dispatch_launcher<Mxfp6E2m3, PeerFabric>(); }

}  // namespace ferry::cuda
