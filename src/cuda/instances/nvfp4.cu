#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher nvfp4_launcher() { return dispatch_launcher<Nvfp4, PeerFabric>(); }

}  // namespace ferry::cuda
