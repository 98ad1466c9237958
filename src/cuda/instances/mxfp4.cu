#include "cuda/launch.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher mxfp4_launcher() { return dispatch_launcher<Mxfp4>(); }

}  // namespace ferry::cuda
