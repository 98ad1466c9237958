// The dispatch kernels of encoded tokens that bring a scale of their own, over DirectFabric.
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/cuda/team/scaled_messages.cuh"

namespace ferry::cuda {

template <class Maker, DeviceFabric F>
DispatchLauncher dispatch_instance() {
  return dispatch_launcher<Maker, F>();
}
template DispatchLauncher dispatch_instance<GivenScaledRows, DirectFabric<>>();

}  // namespace ferry::cuda
