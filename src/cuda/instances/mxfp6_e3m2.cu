#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher mxfp6_e3m2_launcher() { return dispatch_launcher<Mxfp6E3m2, PeerFabric>(); }

}  // namespace ferry::cuda
