#include "cuda/launch.cuh"
#include "shared/codec/formats.h"

namespace ferry::cuda {

DispatchLauncher fp8_block128_launcher() { return dispatch_launcher<Fp8Block128>(); }

}  // namespace ferry::cuda
