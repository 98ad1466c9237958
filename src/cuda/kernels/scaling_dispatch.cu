// The dispatch kernels of tokens that the exchange encodes with a scale of their own, over DirectFabric.
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/cuda/team/scaled_messages.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

template <class Maker, DeviceFabric F>
DispatchLauncher dispatch_instance() {
  return dispatch_launcher<Maker, F>();
}
template DispatchLauncher dispatch_instance<ScalingEncoder<Nvfp4>, DirectFabric<>>();

}  // namespace ferry::cuda
